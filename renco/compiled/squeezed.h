/* How numbers without a bound are told to networks: small ones as they are, large ones by
   their logarithm. */

#include <math.h>

static inline float squeezed(float x) { return copysignf(logf(1.0f + fabsf(x)), x); }

/* An offset with its direction, its length squeezed. */
static inline void offset(const float *a, const float *b, float *to) {
    float dx = b[0] - a[0], dy = b[1] - a[1], length = sqrtf(dx * dx + dy * dy);
    float scale = logf(1.0f + length) / (length > 1e-6f ? length : 1e-6f);
    to[0] = dx * scale;
    to[1] = dy * scale;
}

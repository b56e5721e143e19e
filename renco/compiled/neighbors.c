/* `neighbor_features` of renco/features.py, in one pass over all pairs of nodes.

   Plain C, in loops that a compiler turns into vector instructions. The names in capitals
   are those of features.py, where they have their values. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define AWAY 1e30f /* squared distance of what is not there */

/* e^x for x <= 0, to about 1e-7. */
static inline float exponential(float x) {
    float t = (x > -87.0f ? x : -87.0f) * 1.44269504f;
    float whole = rintf(t), f = t - whole;
    float p = 1.5403530e-4f; /* 2^f = sum of (f ln 2)^i / i! */
    p = p * f + 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    union {
        int32_t bits;
        float value;
    } power = {((int32_t)whole + 127) << 23};
    return p * power.value;
}

/* Keeps the NEAREST smallest. */
static void nearest(const float *squared, long count, float *found) {
    for (int i = 0; i < NEAREST; i++) found[i] = AWAY;
    for (long j = 0; j < count; j++) {
        if (squared[j] >= found[NEAREST - 1]) continue;
        int i = NEAREST - 1;
        for (; i && found[i - 1] > squared[j]; i--) found[i] = found[i - 1];
        found[i] = squared[j];
    }
}

static long below(const float *squared, long count, float bound) {
    int found = 0;
    for (long j = 0; j < count; j++) found += squared[j] < bound;
    return found;
}

static inline float log1(float x) { return logf(1.0f + x); }

/* Adds up the moments of the open nodes around one, and writes what is told of them. */
static void crowd(const float *w, const float *dx, const float *dy, long open, float scale,
                  float *to) {
    float mass = 0, x = 0, y = 0, spread = 0, slant = 0;
    for (long j = 0; j < open; j++) {
        float wx = w[j] * dx[j], wy = w[j] * dy[j];
        mass += w[j];
        x += wx;
        y += wy;
        spread += wx * dx[j] - wy * dy[j];
        slant += 2 * wx * dy[j];
    }
    float size = scale * (mass + NO_CROWD);
    to[0] = log1(mass);
    to[1] = x / size;
    to[2] = y / size;
    to[3] = sqrtf(to[1] * to[1] + to[2] * to[2]);
    to[4] = spread / (scale * size);
    to[5] = slant / (scale * size);
}

/* The same of what they have. */
static void riches(const float *w, const float *dx, const float *dy, const float *has,
                   long open, float scale, float *to) {
    float mass = 0, x = 0, y = 0;
    for (long j = 0; j < open; j++) {
        float own = w[j] * has[j];
        mass += own;
        x += own * dx[j];
        y += own * dy[j];
    }
    float size = scale * (mass + NO_CROWD);
    to[0] = log1(mass);
    to[1] = x / size;
    to[2] = y / size;
}

/* xy: batch x n x 2. mask: batch x n or NULL, which nodes count. amounts: kinds x batch x
   n. to: batch x n x features. */
void neighbors(const float *xy, const uint8_t *mask, const float *amounts, long kinds,
               long batch, long n, float *to) {
    long open = n - 2;
    float *x = malloc((size_t)((6 + SCALES) * n) * sizeof(float));
    if (!x) abort();
    float *y = x + n, *dx = y + n, *dy = dx + n, *squared = dy + n, *hidden = squared + n;
    float *weight = hidden + n;
    const long count = NEAREST + 4 + (6 + 3 * kinds) * SCALES;
    for (long b = 0; b < batch; b++, xy += 2 * n) {
        for (long j = 0; j < open; j++) {
            x[j] = xy[2 * (j + 1)];
            y[j] = xy[2 * (j + 1) + 1];
            hidden[j] = mask && !mask[b * n + j + 1] ? AWAY : 0.0f;
        }
        float *own = to + b * n * count;
        for (long i = 0; i < n; i++, own += count) {
            float from_x = xy[2 * i], from_y = xy[2 * i + 1], found[NEAREST];
            for (long j = 0; j < open; j++) {
                dx[j] = x[j] - from_x;
                dy[j] = y[j] - from_y;
                squared[j] = dx[j] * dx[j] + dy[j] * dy[j] + hidden[j];
            }
            if (i && i < n - 1) squared[i - 1] = AWAY; /* no neighbor of its own */
            nearest(squared, open, found);
            for (int c = 0; c < NEAREST; c++) {
                float away = sqrtf(found[c]);
                own[c] = log1(away < FAR ? away : FAR);
            }
            for (int end = 0; end < 2; end++) {
                const float *place = end ? xy + 2 * (n - 1) : xy;
                float ax = from_x - place[0], ay = from_y - place[1];
                float far = below(squared, open, ax * ax + ay * ay);
                own[NEAREST + end] = log1(far) / 2;
            }
            for (long j = 0; j < open; j++)
                weight[j] = exponential(squared[j] / -(WIDEST * WIDEST));
            for (int s = 1; s < SCALES; s++)
                for (long j = 0; j < open; j++) {
                    float twice = weight[(s - 1) * n + j] * weight[(s - 1) * n + j];
                    weight[s * n + j] = twice * twice;
                }
            float scale = WIDEST, *next = own + NEAREST + 4;
            for (int s = 0; s < SCALES; s++, next += 6, scale /= 2)
                crowd(weight + s * n, dx, dy, open, scale, next);
            for (long kind = 0; kind < kinds; kind++) {
                const float *has = amounts + (kind * batch + b) * n + 1;
                scale = WIDEST;
                for (int s = 0; s < SCALES; s++, next += 3, scale /= 2)
                    riches(weight + s * n, dx, dy, has, open, scale, next);
            }
        }
        /* How many open nodes are nearer to each end than each node is. */
        for (int end = 0; end < 2; end++) {
            const float *place = end ? xy + 2 * (n - 1) : xy;
            for (long j = 0; j < open; j++) {
                float ax = x[j] - place[0], ay = y[j] - place[1];
                squared[j] = ax * ax + ay * ay + hidden[j];
            }
            for (long i = 0; i < n; i++) {
                float ax = xy[2 * i] - place[0], ay = xy[2 * i + 1] - place[1];
                float nearer = below(squared, open, ax * ax + ay * ay);
                to[(b * n + i) * count + NEAREST + 2 + end] = log1(nearer) / 2;
            }
        }
    }
    free(x);
}

/* Vectors of 16 floats, and bfloat16 by halves and pairs. Pairs are multiplied as such
   where the processor can (AVX-512 BF16), and elsewhere as two floats. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef __AVX512F__
#error "this processor has no AVX-512"
#endif

typedef __m512 vec;
typedef uint16_t half; /* bfloat16 */
typedef uint32_t pair; /* two of them */

static inline vec load(const float *p) { return _mm512_loadu_ps(p); }
static inline void store(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec splat(float x) { return _mm512_set1_ps(x); }
/* a b + c */
static inline vec plus(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }

static inline __m512i spread(pair x) { return _mm512_set1_epi32((int)x); }
static inline __m512i load_pairs(const pair *p) { return _mm512_loadu_si512(p); }
static inline vec first_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
static inline vec second_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, spread(0xffff0000)));
}

/* `halved` rounds to the nearest halves; `dot` adds the products of both of each pair. */
#ifdef __AVX512BF16__
static inline __m256i halved(vec v) { return (__m256i)_mm512_cvtneps_pbh(v); }
static inline vec dot(vec sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#else
static inline __m256i halved(vec v) {
    __m512i bits = _mm512_castps_si512(v);
    __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), spread(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(last, spread(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}
static inline vec dot(vec sum, __m512i a, __m512i b) {
    return plus(first_of(a), first_of(b), plus(second_of(a), second_of(b), sum));
}
#endif

static inline void store_half(half *p, vec v) {
    _mm256_storeu_si256((__m256i *)p, halved(v));
}
static inline vec load_half(const half *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* e^x for x <= 0, to about 1e-7; 0 or next to it where x is very small. */
static inline vec expv(vec x) {
    vec t = _mm512_mul_ps(_mm512_max_ps(x, splat(-87.0f)), splat(1.44269504f));
    vec whole = _mm512_roundscale_ps(t, 8);
    vec f = _mm512_sub_ps(t, whole);
    vec p = splat(1.5403530e-4f); /* 2^f = sum of (f ln 2)^i / i! */
    p = plus(p, f, splat(1.3333558e-3f));
    p = plus(p, f, splat(9.6181291e-3f));
    p = plus(p, f, splat(5.5504109e-2f));
    p = plus(p, f, splat(2.4022651e-1f));
    p = plus(p, f, splat(6.9314718e-1f));
    p = plus(p, f, splat(1.0f));
    return _mm512_scalef_ps(p, whole);
}

/* Interleaves two rows of 16 and stores them. */
static inline void store_pairs(pair *to, vec even, vec odd) {
    __m512i low = _mm512_cvtepu16_epi32(halved(even));
    __m512i high = _mm512_cvtepu16_epi32(halved(odd));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* Interleaves rows; an odd last one is paired with zeros. */
static inline void pair_up(const half *x, const half *y, long columns, pair *to) {
    for (long j = 0; j < columns; j += 16) {
        __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + j)));
        __m512i high = _mm512_setzero_si512();
        if (y)
            high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(y + j)));
        _mm512_storeu_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

static long padded(long n, long to) { return (n + to - 1) / to * to; }

/* Returns room for floats, aligned to vectors. */
static float *room(long floats) {
    float *found = aligned_alloc(64, ((size_t)floats * sizeof(float) + 63) / 64 * 64);
    if (!found) abort();
    return found;
}

/* The block of an encoder, forwards and backwards, for processors that multiply bfloat16
   (AVX-512 BF16).

   Names are those of renco/model.py. A matrix of `rows` tokens has its rows one after the
   other. Products have bfloat16 factors and float32 sums; softmax, norms and residual
   sums are float32 throughout. A factor is kept as `half`, row by row, or as `pair`:
   rows 2i and 2i + 1 interleaved, since that is what the processor multiplies at once. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef __AVX512BF16__
#error "this processor has no AVX-512 BF16"
#endif

#define DIM 16 /* of a head: one vector holds a row of queries, keys or values */
#define QUERIES 8 /* at a time: enough independent sums to keep the FMAs busy */
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define TILE_COLUMNS (16 * TILE_VECTORS)

typedef __m512 vec;
typedef uint16_t half; /* bfloat16 */
typedef uint32_t pair; /* two of them */

static inline vec load(const float *p) { return _mm512_loadu_ps(p); }
static inline void store(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec splat(float x) { return _mm512_set1_ps(x); }
/* a b + c */
static inline vec plus(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }

static inline void store_half(half *p, vec v) {
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
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

/* --- matrix products ------------------------------------------------------------- */

/* to[i][j] = add[i][j], or 0 without it, plus the sum over k of a(i, k) b(k, j), where
   a(i, k) = a[i * a_row + k * a_step] and b(k, j) = b[k * b_step + j] are pairs. */
static inline __attribute__((always_inline)) void tile(
    const int rows, const pair *a, long a_row, long a_step, const pair *b, long b_step,
    long depth, const float *add, float *to, long to_row) {
    vec sums[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            sums[i][j] = add ? load(add + i * to_row + 16 * j) : splat(0);
    for (long k = 0; k < depth; k++, a += a_step, b += b_step) {
        __m512bh columns[TILE_VECTORS];
        for (int j = 0; j < TILE_VECTORS; j++)
            columns[j] = (__m512bh)_mm512_loadu_si512(b + 16 * j);
        for (int i = 0; i < rows; i++) {
            __m512bh own = (__m512bh)_mm512_set1_epi32((int)a[i * a_row]);
            for (int j = 0; j < TILE_VECTORS; j++)
                sums[i][j] = _mm512_dpbf16_ps(sums[i][j], own, columns[j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++) store(to + i * to_row + 16 * j, sums[i][j]);
}

static void product(const pair *a, long a_row, long a_step, const pair *b, long depth,
                    long rows, long columns, const float *add, float *to) {
#pragma omp parallel for collapse(2)
    for (long j = 0; j < columns; j += TILE_COLUMNS)
        for (long i = 0; i < rows; i += TILE_ROWS) {
            const pair *own = a + i * a_row;
            const float *first = add ? add + i * columns + j : NULL;
            float *out = to + i * columns + j;
#define TILE(count)                                                                      \
    case count:                                                                          \
        tile(count, own, a_row, a_step, b + j, columns, depth, first, out, columns);     \
        break;
            switch (rows - i) {
                TILE(1) TILE(2) TILE(3) TILE(4) TILE(5)
            default:
                tile(TILE_ROWS, own, a_row, a_step, b + j, columns, depth, first, out,
                     columns);
            }
        }
}

/* to = add + a b, for `rows` tokens; `add` may be `to` or NULL. */
static void apply(const half *a, const pair *b, long rows, long inner, long columns,
                  const float *add, float *to) {
    product((const pair *)a, inner / 2, 1, b, inner / 2, rows, columns, add, to);
}

/* to[i][j] = sum over tokens of a[token][i] b[token][j]: the gradient of a weight. */
static void correlate(const pair *a, const pair *b, long tokens, long rows, long columns,
                      float *to) {
    product(a, 1, rows, b, (tokens + 1) / 2, rows, columns, NULL, to);
}

static void to_half(const float *x, long count, half *to) {
#pragma omp parallel for
    for (long i = 0; i < count; i += 16) store_half(to + i, load(x + i));
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

static void to_pairs(const half *x, long rows, long columns, pair *to) {
#pragma omp parallel for
    for (long i = 0; i < rows; i += 2)
        pair_up(x + i * columns, i + 1 < rows ? x + (i + 1) * columns : NULL, columns,
                to + i / 2 * columns);
}

/* Packs a weight of out x in, its columns times `gain` (NULL for 1) and all times `factor`
   (NULL for 1), for both directions: `forth` has pairs along `in`, in / 2 x out of them,
   and `back` along `out`, out / 2 x in. */
void pack(const float *weight, const float *gain, const float *factor, long out, long in,
          pair *forth, pair *back) {
    half *row = malloc((size_t)(out * in) * sizeof(half));
    if (!row) abort();
    const vec all = splat(factor ? *factor : 1);
    for (long i = 0; i < out; i++)
        for (long k = 0; k < in; k += 16) {
            vec times = gain ? _mm512_mul_ps(all, load(gain + k)) : all;
            store_half(row + i * in + k, _mm512_mul_ps(load(weight + i * in + k), times));
        }
    to_pairs(row, out, in, back);
    const __m512i places = _mm512_mullo_epi32(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
        _mm512_set1_epi32((int)in / 2));
    for (long i = 0; i < out; i += 16)
        for (long k = 0; k < in / 2; k++)
            _mm512_storeu_si512(forth + k * out + i,
                                _mm512_i32gather_epi32(
                                    places, (const pair *)row + i * (in / 2) + k, 4));
    free(row);
}

/* --- norms ------------------------------------------------------------------------ */

/* Divides rows of d floats by their root mean square; `by` is one over it. */
static void normalize(const float *x, long rows, long d, half *out, float *by) {
#pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        const float *own = x + i * d;
        vec squares = splat(0);
        for (long j = 0; j < d; j += 16)
            squares = plus(load(own + j), load(own + j), squares);
        by[i] = 1.0f / sqrtf(_mm512_reduce_add_ps(squares) / d + 1e-6f);
        for (long j = 0; j < d; j += 16)
            store_half(out + i * d + j, _mm512_mul_ps(load(own + j), splat(by[i])));
    }
}

/* to += the gradient of `normalize`, of which y is the outcome. */
static void normalize_back(const half *y, const float *by, const float *grad, long rows,
                           long d, float *to) {
#pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        const half *own = y + i * d;
        const float *given = grad + i * d;
        vec dot = splat(0);
        for (long j = 0; j < d; j += 16)
            dot = plus(load_half(own + j), load(given + j), dot);
        vec mean = splat(-_mm512_reduce_add_ps(dot) / d), factor = splat(by[i]);
        for (long j = 0; j < d; j += 16) {
            vec turned = plus(mean, load_half(own + j), load(given + j));
            store(to + i * d + j, plus(factor, turned, load(to + i * d + j)));
        }
    }
}

/* --- attention -------------------------------------------------------------------- */

/* Scores are float32, as squared distances are small differences of large numbers there;
   all other products have bfloat16 factors. */

static inline __m512bh spread(pair x) { return (__m512bh)_mm512_set1_epi32((int)x); }
static inline __m512bh load_pairs(const pair *p) {
    return (__m512bh)_mm512_loadu_si512(p);
}

/* Interleaves two rows of 16 and stores them. */
static inline void store_pairs(pair *to, vec even, vec odd) {
    __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
    __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* Row j of a head; 0 where there is none. */
static inline vec row_of(const float *from, long stride, long j, long n) {
    return j < n ? load(from + j * stride) : splat(0);
}

/* Pairs of rows: p / 2 x 16. */
static void row_pairs(const float *from, long stride, long n, long p, pair *to) {
    for (long j = 0; j < p; j += 2, to += DIM)
        store_pairs(to, row_of(from, stride, j, n), row_of(from, stride, j + 1, n));
}

/* Columns, one after the other: 16 x p. */
static void columns_of(const float *from, long stride, long n, long p, float *to) {
    for (long j = 0; j < p; j++)
        for (long i = 0; i < DIM; i++) to[i * p + j] = j < n ? from[j * stride + i] : 0;
}

/* Pairs of columns: 8 x p. */
static void column_pairs(const float *from, long stride, long n, long p, pair *to) {
    for (long j = 0; j < p; j++) {
        pair row[DIM / 2];
        store_half((half *)row, row_of(from, stride, j, n));
        for (long i = 0; i < DIM / 2; i++) to[i * p + j] = row[i];
    }
}

/* out[r] = sum over j of weights[r][j] rows[j], for QUERIES rows of p weights. */
static void mixtures(const half *weights, const pair *rows, long p, vec *out) {
    vec total[QUERIES];
    for (int r = 0; r < QUERIES; r++) total[r] = splat(0);
    for (long j = 0; j < p / 2; j++, rows += DIM) {
        __m512bh own = load_pairs(rows);
        for (int r = 0; r < QUERIES; r++) {
            __m512bh weight = spread(((const pair *)weights)[r * p / 2 + j]);
            total[r] = _mm512_dpbf16_ps(total[r], weight, own);
        }
    }
    for (int r = 0; r < QUERIES; r++) out[r] = total[r];
}

/* As good as -inf where there is no node or it is hidden. */
static void bias(const uint8_t *mask, long n, long p, float *to) {
    for (long j = 0; j < p; j++) to[j] = j < n && (!mask || mask[j]) ? 0.0f : -1e30f;
}

static long padded(long n, long to) { return (n + to - 1) / to * to; }

/* Returns room for floats, aligned to vectors. */
static float *room(long floats) {
    float *found = aligned_alloc(64, ((size_t)floats * sizeof(float) + 63) / 64 * 64);
    if (!found) abort();
    return found;
}

/* Scaled dot-product attention. chances: batch x heads x padded(n, QUERIES) x
   padded(n, DIM), of each row in units of its largest; inverse: batch x heads x padded(n,
   QUERIES), one over their sum. */
static void attend(const float *qkv, const uint8_t *mask, long batch, long n, long heads,
                   half *out, half *all_chances, float *all_inverse) {
    long p = padded(n, DIM), queries = padded(n, QUERIES);
    long width = heads * DIM, stride = 3 * width;
    const float scale = 1.0f / sqrtf(DIM);
#pragma omp parallel for collapse(2)
    for (long b = 0; b < batch; b++)
        for (long h = 0; h < heads; h++) {
            float *k = room(2 * DIM * p + p + QUERIES * p), *add = k + DIM * p;
            float *s = add + p;
            pair *v = (pair *)(s + QUERIES * p);
            half *chances = all_chances + (b * heads + h) * queries * p;
            float *inverse = all_inverse + (b * heads + h) * queries;
            bias(mask ? mask + b * n : NULL, n, p, add);
            const float *base = qkv + b * n * stride + h * DIM;
            columns_of(base + width, stride, n, p, k);
            row_pairs(base + 2 * width, stride, n, p, v);
            for (long i = 0; i < n; i += QUERIES) {
                float q[QUERIES][DIM];
                for (long r = 0; r < QUERIES; r++)
                    store(q[r], _mm512_mul_ps(row_of(base, stride, i + r, n), splat(scale)));
                vec most[QUERIES];
                for (int r = 0; r < QUERIES; r++) most[r] = splat(-INFINITY);
                for (long j = 0; j < p; j += 16) {
                    vec total[QUERIES];
                    for (int r = 0; r < QUERIES; r++) total[r] = load(add + j);
                    for (int c = 0; c < DIM; c++) {
                        vec column = load(k + c * p + j);
                        for (int r = 0; r < QUERIES; r++)
                            total[r] = plus(splat(q[r][c]), column, total[r]);
                    }
                    for (int r = 0; r < QUERIES; r++) {
                        store(s + r * p + j, total[r]);
                        most[r] = _mm512_max_ps(most[r], total[r]);
                    }
                }
                for (int r = 0; r < QUERIES; r++) {
                    vec top = splat(_mm512_reduce_max_ps(most[r])), all = splat(0);
                    for (long j = 0; j < p; j += 16) {
                        vec e = expv(_mm512_sub_ps(load(s + r * p + j), top));
                        store_half(chances + r * p + j, e);
                        all = _mm512_add_ps(all, e);
                    }
                    inverse[r] = 1.0f / _mm512_reduce_add_ps(all);
                }
                vec mixed[QUERIES];
                mixtures(chances, v, p, mixed);
                for (long r = 0; r < QUERIES && i + r < n; r++)
                    store_half(out + (b * n + i + r) * width + h * DIM,
                               _mm512_mul_ps(mixed[r], splat(inverse[r])));
                chances += QUERIES * p;
                inverse += QUERIES;
            }
            free(k);
        }
}

/* The gradient of `attend`: from that of `out`, `grad`, to that of `qkv`. */
static void attend_back(const float *qkv, long batch, long n, long heads, const half *out,
                        const half *all_chances, const float *all_inverse,
                        const float *grad, float *to) {
    long p = padded(n, DIM), queries = padded(n, QUERIES);
    long width = heads * DIM, stride = 3 * width;
    const vec scale = splat(1.0f / sqrtf(DIM));
#pragma omp parallel for collapse(2)
    for (long b = 0; b < batch; b++)
        for (long h = 0; h < heads; h++) {
            float *dk = room(5 * DIM * p + 3 * QUERIES * p), *dv = dk + DIM * p;
            pair *k = (pair *)(dv + DIM * p), *v = k + DIM * p; /* of rows, of columns */
            pair *twos = v + DIM * p, *own = twos + QUERIES * p; /* of chances, of ds */
            half *ds = (half *)(own + QUERIES * p);
            const half *chances = all_chances + (b * heads + h) * queries * p;
            const float *inverse = all_inverse + (b * heads + h) * queries;
            long at = b * n * stride + h * DIM, place = b * n * width + h * DIM;
            row_pairs(qkv + at + width, stride, n, p, k);
            column_pairs(qkv + at + 2 * width, stride, n, p, v);
            memset(dk, 0, (size_t)(2 * DIM * p) * sizeof(float));
            for (long i = 0; i < n; i += QUERIES) {
                pair g[QUERIES][DIM / 2]; /* gradients of rows, pairs of columns */
                pair q_rows[QUERIES / 2][DIM], g_rows[QUERIES / 2][DIM];
                vec inner[QUERIES], times[QUERIES];
                vec last_q = splat(0), last_g = splat(0);
                for (long r = 0; r < QUERIES; r++) {
                    vec grads = row_of(grad + place, width, i + r, n), mixed = splat(0);
                    if (i + r < n) mixed = load_half(out + place + (i + r) * width);
                    vec query = row_of(qkv + at, stride, i + r, n);
                    query = _mm512_mul_ps(query, scale);
                    inner[r] =
                        splat(_mm512_reduce_add_ps(_mm512_mul_ps(grads, mixed)));
                    times[r] = splat(inverse[r]);
                    store_half((half *)g[r], grads);
                    grads = _mm512_mul_ps(grads, times[r]);
                    if (r % 2) {
                        store_pairs(q_rows[r / 2], last_q, query);
                        store_pairs(g_rows[r / 2], last_g, grads);
                    }
                    last_q = query;
                    last_g = grads;
                }
                for (long j = 0; j < p; j += 16) {
                    vec total[QUERIES];
                    for (int r = 0; r < QUERIES; r++) total[r] = splat(0);
                    for (int c = 0; c < DIM / 2; c++) {
                        __m512bh column = load_pairs(v + c * p + j);
                        for (int r = 0; r < QUERIES; r++)
                            total[r] = _mm512_dpbf16_ps(total[r], spread(g[r][c]), column);
                    }
                    for (int r = 0; r < QUERIES; r++) {
                        vec chance = load_half(chances + r * p + j);
                        total[r] = _mm512_mul_ps(
                            _mm512_mul_ps(chance, times[r]),
                            _mm512_sub_ps(total[r], inner[r]));
                        store_half(ds + r * p + j, total[r]);
                    }
                    for (int r = 0; r < QUERIES; r += 2)
                        store_pairs(own + r / 2 * p + j, total[r], total[r + 1]);
                }
                for (int r = 0; r < QUERIES; r += 2)
                    pair_up(chances + r * p, chances + (r + 1) * p, p, twos + r / 2 * p);
                vec dq[QUERIES];
                mixtures(ds, k, p, dq);
                for (long r = 0; r < QUERIES && i + r < n; r++)
                    store(to + at + (i + r) * stride, _mm512_mul_ps(dq[r], scale));
                for (long j = 0; j < n; j++) {
                    vec key = load(dk + DIM * j), value = load(dv + DIM * j);
                    for (int r = 0; r < QUERIES / 2; r++) {
                        key = _mm512_dpbf16_ps(key, spread(own[r * p + j]),
                                               load_pairs(q_rows[r]));
                        value = _mm512_dpbf16_ps(value, spread(twos[r * p + j]),
                                                 load_pairs(g_rows[r]));
                    }
                    store(dk + DIM * j, key);
                    store(dv + DIM * j, value);
                }
                chances += QUERIES * p;
                inverse += QUERIES;
            }
            for (long j = 0; j < n; j++) {
                store(to + at + width + j * stride, load(dk + DIM * j));
                store(to + at + 2 * width + j * stride, load(dv + DIM * j));
            }
            free(dk);
        }
}

/* --- the block -------------------------------------------------------------------- */

/* Sizes: a state has n nodes, a batch so many states. */
typedef struct {
    long batch, n, d, ff;
} sizes;

/* The weights, gains and ReZero factors multiplied in, each packed for both directions;
   `near` is what `where` adds to queries, keys and values: 4 x 3d. */
typedef struct {
    const float *near;
    const pair *qkv, *qkv_back, *out, *out_back;
    const pair *up, *up_back, *down, *down_back;
    const float *up_bias;
} weights;

/* What the way back needs of the way forth. */
typedef struct {
    half *normed;
    float *by, *qkv;
    half *mixed, *chances;
    float *inverse;
    half *normed_ff;
    float *by_ff;
    half *hidden;
} memory;

/* The gradients of the weights, and of `near`. */
typedef struct {
    float *near, *qkv, *out, *up, *up_bias, *down;
} gradients;

void forth(const sizes *z, const weights *w, const float *x, const float *where,
           const uint8_t *mask, memory *m, float *y) {
    long rows = z->batch * z->n, d = z->d, ff = z->ff;
    normalize(x, rows, d, m->normed, m->by);
#pragma omp parallel for
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < 3 * d; j += 16) {
            vec total = splat(0);
            for (int c = 0; c < 4; c++)
                total = plus(splat(where[4 * i + c]), load(w->near + 3 * c * d + j), total);
            store(m->qkv + 3 * i * d + j, total);
        }
    apply(m->normed, w->qkv, rows, d, 3 * d, m->qkv, m->qkv);
    attend(m->qkv, mask, z->batch, z->n, d / DIM, m->mixed, m->chances,
           m->inverse);
    apply(m->mixed, w->out, rows, d, d, x, y);
    normalize(y, rows, d, m->normed_ff, m->by_ff);
    float *hidden = room(rows * ff);
    apply(m->normed_ff, w->up, rows, d, ff, NULL, hidden);
#pragma omp parallel for
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < ff; j += 16) {
            vec total = _mm512_add_ps(load(hidden + i * ff + j), load(w->up_bias + j));
            store_half(m->hidden + i * ff + j, _mm512_max_ps(total, splat(0)));
        }
    free(hidden);
    apply(m->hidden, w->down, rows, ff, d, y, y);
}

/* From the gradient of y to that of x, both in `grad`, and to those of the weights. */
void back(const sizes *z, const weights *w, const float *where, const memory *m,
          float *grad, gradients *to) {
    long rows = z->batch * z->n, d = z->d, ff = z->ff;
    long widest = ff > 3 * d ? ff : 3 * d, even = rows + 1;
    float *wide = room(3 * even * widest + rows * d);
    half *given = (half *)(wide + even * widest);
    pair *a = (pair *)(given + even * widest), *b = a + even / 2 * widest;
    float *narrow = wide + 3 * even * widest;

    to_half(grad, rows * d, given);
    to_pairs(given, rows, d, a);
    to_pairs(m->hidden, rows, ff, b);
    correlate(a, b, rows, d, ff, to->down);
    apply(given, w->down_back, rows, d, ff, NULL, wide);
#pragma omp parallel for
    for (long j = 0; j < ff; j += 16) {
        vec total = splat(0);
        for (long i = 0; i < rows; i++) {
            __mmask16 on = _mm512_cmp_ps_mask(load_half(m->hidden + i * ff + j), splat(0),
                                              _CMP_GT_OQ);
            vec own = _mm512_maskz_mov_ps(on, load(wide + i * ff + j));
            store_half(given + i * ff + j, own);
            total = _mm512_add_ps(total, own);
        }
        store(to->up_bias + j, total);
    }
    to_pairs(given, rows, ff, a);
    to_pairs(m->normed_ff, rows, d, b);
    correlate(a, b, rows, ff, d, to->up);
    apply(given, w->up_back, rows, ff, d, NULL, narrow);
    normalize_back(m->normed_ff, m->by_ff, narrow, rows, d, grad);

    to_half(grad, rows * d, given);
    to_pairs(given, rows, d, a);
    to_pairs(m->mixed, rows, d, b);
    correlate(a, b, rows, d, d, to->out);
    apply(given, w->out_back, rows, d, d, NULL, narrow);
    attend_back(m->qkv, z->batch, z->n, d / DIM, m->mixed, m->chances, m->inverse, narrow,
                wide);
#pragma omp parallel for
    for (long j = 0; j < 3 * d; j += 16) {
        vec near[4] = {splat(0), splat(0), splat(0), splat(0)};
        for (long i = 0; i < rows; i++)
            for (int c = 0; c < 4; c++)
                near[c] = plus(splat(where[4 * i + c]), load(wide + 3 * i * d + j), near[c]);
        for (int c = 0; c < 4; c++) store(to->near + 3 * c * d + j, near[c]);
    }
    to_half(wide, 3 * rows * d, given);
    to_pairs(given, rows, 3 * d, a);
    to_pairs(m->normed, rows, d, b);
    correlate(a, b, rows, 3 * d, d, to->qkv);
    apply(given, w->qkv_back, rows, 3 * d, d, NULL, narrow);
    normalize_back(m->normed, m->by, narrow, rows, d, grad);
    free(wide);
}

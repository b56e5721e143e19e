/* The block of an encoder, forwards and backwards, for processors with AVX-512, and better
   for those that multiply bfloat16 (AVX-512 BF16, and AMX where there is any).

   Names are those of renco/model.py. A matrix of `rows` tokens has its rows one after the
   other. Products have bfloat16 factors and float32 sums; softmax, norms and residual
   sums are float32 throughout. A factor is kept as `half`, row by row, or as `pair`:
   rows 2i and 2i + 1 interleaved, since that is what the processor multiplies at once. */

#include "tiles.h"

#define DIM 16 /* of a head: one vector holds a row of queries, keys or values */
#define QUERIES 16 /* at a time: enough independent sums to keep the FMAs busy */
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define TILE_COLUMNS (16 * TILE_VECTORS)

/* --- matrix products ------------------------------------------------------------- */

/* What a tile multiplies its vectors by: pairs, or the floats that pairs consist of. */
#ifdef __AVX512BF16__
#define PARTS 1
typedef pair factor;
typedef __m512i factors;
static inline factors part(__m512i pairs, int i) { return (void)i, pairs; }
static inline factors alike(factor x) { return spread(x); }
static inline vec plus_parts(factors a, factors b, vec sum) { return dot(sum, a, b); }
#else
#define PARTS 2
typedef float factor;
typedef vec factors;
static inline factors part(__m512i pairs, int i) {
    return i ? second_of(pairs) : first_of(pairs);
}
static inline factors alike(factor x) { return splat(x); }
static inline vec plus_parts(factors a, factors b, vec sum) { return plus(a, b, sum); }
#endif

/* to[i][j] = add[i][j], or 0 without it, plus the sum over k of a(i, k) b(k, j), where
   a(i, k) = a[i * a_row + k * a_step], its parts one after the other, and
   b(k, j) = b[k * b_step + j] are pairs. */
static inline __attribute__((always_inline)) void tile(
    const int rows, const factor *a, long a_row, long a_step, const pair *b, long b_step,
    long depth, const float *add, float *to, long to_row) {
    vec sums[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            sums[i][j] = add ? load(add + i * to_row + 16 * j) : splat(0);
    for (long k = 0; k < depth; k++, a += a_step, b += b_step)
        for (int c = 0; c < PARTS; c++) {
            factors columns[TILE_VECTORS];
            for (int j = 0; j < TILE_VECTORS; j++)
                columns[j] = part(load_pairs(b + 16 * j), c);
            for (int i = 0; i < rows; i++) {
                factors own = alike(a[i * a_row + c]);
                for (int j = 0; j < TILE_VECTORS; j++)
                    sums[i][j] = plus_parts(own, columns[j], sums[i][j]);
            }
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++) store(to + i * to_row + 16 * j, sums[i][j]);
}

/* The same for as many rows as are left, TILE_ROWS at most. */
static void tile_of(long rows, const factor *a, long a_row, long a_step, const pair *b,
                    long b_step, long depth, const float *add, float *to, long to_row) {
#define TILE(count)                                                                      \
    case count:                                                                          \
        tile(count, a, a_row, a_step, b, b_step, depth, add, to, to_row);                \
        break;
    switch (rows) {
        TILE(1) TILE(2) TILE(3) TILE(4) TILE(5)
    default:
        tile(TILE_ROWS, a, a_row, a_step, b, b_step, depth, add, to, to_row);
    }
}

#if PARTS == 1

static void product_in_vectors(const pair *a, long a_row, long a_step, const pair *b,
                               long depth, long rows, long columns, const float *add,
                               float *to) {
#pragma omp parallel for collapse(2)
    for (long j = 0; j < columns; j += TILE_COLUMNS)
        for (long i = 0; i < rows; i += TILE_ROWS)
            tile_of(rows - i, a + i * a_row, a_row, a_step, b + j, columns, depth,
                    add ? add + i * columns + j : NULL, to + i * columns + j, columns);
}

#else

/* The floats of some rows, one row after the other. */
static void separated(const pair *a, long a_row, long a_step, long rows, long depth,
                      float *to) {
    for (long i = 0; i < rows; i++)
        for (long k = 0; k < depth; k++) {
            union {
                pair bits[2];
                float values[2];
            } own;
            const pair both = a[i * a_row + k * a_step];
            own.bits[0] = both << 16;
            own.bits[1] = both & 0xffff0000;
            to[2 * (i * depth + k)] = own.values[0];
            to[2 * (i * depth + k) + 1] = own.values[1];
        }
}

static void product_in_vectors(const pair *a, long a_row, long a_step, const pair *b,
                               long depth, long rows, long columns, const float *add,
                               float *to) {
#pragma omp parallel
    {
        float *own = room(2 * TILE_ROWS * depth);
#pragma omp for
        for (long i = 0; i < rows; i += TILE_ROWS) {
            const long count = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
            separated(a + i * a_row, a_row, a_step, count, depth, own);
            for (long j = 0; j < columns; j += TILE_COLUMNS)
                tile_of(count, own, 2 * depth, 2, b + j, columns, depth,
                        add ? add + i * columns + j : NULL, to + i * columns + j, columns);
        }
        free(own);
    }
}

#endif

/* to[i][j] = add[i][j], or 0 without it, plus the sum over k of a(i, k) b(k, j), as in
   `tile`; rows are a multiple of 32 where a_step is not 1. */
static void product(const pair *a, long a_row, long a_step, const pair *b, long depth,
                    long rows, long columns, const float *add, float *to) {
    long done = 0;
    if (tiles_allowed)
        done = product_in_tiles(a, a_row, a_step, b, depth, rows, columns, add, to);
    if (done < rows)
        product_in_vectors(a + done * a_row, a_row, a_step, b, depth, rows - done, columns,
                           add ? add + done * columns : NULL, to + done * columns);
}

/* to = add + a b, for `rows` tokens; `add` may be `to` or NULL. */
static void apply(const half *a, const pair *b, long rows, long inner, long columns,
                  const float *add, float *to) {
    product((const pair *)a, inner / 2, 1, b, inner / 2, rows, columns, add, to);
}

/* to[i][j] = sum over tokens of a[token][i] b[token][j]: the gradient of a weight. */
static void correlate(const pair *a, const pair *b, long tokens, long rows, long columns,
                      float *to) {
    product(a, 1, rows, b, padded(tokens, 2 * DEPTH) / 2, rows, columns, NULL, to);
}

static void to_half(const float *x, long count, half *to) {
#pragma omp parallel for
    for (long i = 0; i < count; i += 16) store_half(to + i, load(x + i));
}

/* The pairs of rows, and zeros until there is a multiple of DEPTH of them. */
static void to_pairs(const half *x, long rows, long columns, pair *to) {
    long even = padded(rows, 2), all = padded(rows, 2 * DEPTH);
#pragma omp parallel for
    for (long i = 0; i < rows; i += 2)
        pair_up(x + i * columns, i + 1 < rows ? x + (i + 1) * columns : NULL, columns,
                to + i / 2 * columns);
    memset(to + even / 2 * columns, 0, (size_t)((all - even) / 2 * columns) * sizeof(pair));
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

/* to[r] = sum over j of weights[r][j] rows[j], for QUERIES rows of p weights. */
static void mixtures(const half *weights, const pair *rows, long p, float *to) {
    const pair *given = (const pair *)weights;
    if (tiles_allowed) {
        mixtures_in_tiles(given, rows, p, to);
        return;
    }
    vec total[QUERIES];
    for (int r = 0; r < QUERIES; r++) total[r] = splat(0);
    for (long j = 0; j < p / 2; j++, rows += DIM) {
        __m512i own = load_pairs(rows);
        for (int r = 0; r < QUERIES; r++)
            total[r] = dot(total[r], spread(given[r * p / 2 + j]), own);
    }
    for (int r = 0; r < QUERIES; r++) store(to + DIM * r, total[r]);
}

/* to[r][j] = the product of row r of g and column j of v, for QUERIES rows of p. */
static void differences(const pair *g, const pair *v, long p, float *to) {
    if (tiles_allowed) {
        differences_in_tiles(g, v, p, to);
        return;
    }
    for (long j = 0; j < p; j += 16) {
        vec total[QUERIES];
        for (int r = 0; r < QUERIES; r++) total[r] = splat(0);
        for (int c = 0; c < DIM / 2; c++) {
            __m512i column = load_pairs(v + c * p + j);
            for (int r = 0; r < QUERIES; r++)
                total[r] = dot(total[r], spread(g[r * DIM / 2 + c]), column);
        }
        for (int r = 0; r < QUERIES; r++) store(to + r * p + j, total[r]);
    }
}

/* to[j] = sum over i of weights[i][j] rows[i], for each of p, over `depth` pairs of i. */
static void gathered(const pair *weights, long p, const pair *rows, long depth, float *to) {
    if (tiles_allowed) {
        gathered_in_tiles(weights, p, rows, depth, to);
        return;
    }
    for (long j = 0; j < p; j += 16) {
        vec total[16];
        for (int r = 0; r < 16; r++) total[r] = splat(0);
        for (long i = 0; i < depth; i++)
            for (int r = 0; r < 16; r++)
                total[r] = dot(total[r], spread(weights[i * p + j + r]),
                               load_pairs(rows + i * DIM));
        for (int r = 0; r < 16; r++) store(to + DIM * (j + r), total[r]);
    }
}

/* As good as -inf where there is no node or it is hidden. */
static void bias(const uint8_t *mask, long n, long p, float *to) {
    for (long j = 0; j < p; j++) to[j] = j < n && (!mask || mask[j]) ? 0.0f : -1e30f;
}

/* One head of one state: queries, keys and values are rows of `qkv`, `stride` floats
   apart; `out` gets rows `width` apart. */
static void attend_head(const float *qkv, const float *add, long n, long width, half *out,
                        half *chances, float *inverse) {
    const long p = padded(n, DIM), stride = 3 * width;
    const float scale = 1.0f / sqrtf(DIM);
    float *k = room(2 * DIM * p + QUERIES * p), *s = k + DIM * p;
    pair *v = (pair *)(s + QUERIES * p);
    columns_of(qkv + width, stride, n, p, k);
    row_pairs(qkv + 2 * width, stride, n, p, v);
    for (long i = 0; i < n; i += QUERIES) {
        float q[QUERIES][DIM];
        for (long r = 0; r < QUERIES; r++)
            store(q[r], _mm512_mul_ps(row_of(qkv, stride, i + r, n), splat(scale)));
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
        float mixed[QUERIES * DIM];
        mixtures(chances, v, p, mixed);
        for (long r = 0; r < QUERIES && i + r < n; r++)
            store_half(out + (i + r) * width,
                       _mm512_mul_ps(load(mixed + DIM * r), splat(inverse[r])));
        chances += QUERIES * p;
        inverse += QUERIES;
    }
    free(k);
}

/* Scaled dot-product attention. chances: batch x heads x padded(n, QUERIES) x
   padded(n, DIM), of each row in units of its largest; inverse: batch x heads x padded(n,
   QUERIES), one over their sum. */
static void attend(const float *qkv, const uint8_t *mask, long batch, long n, long heads,
                   half *out, half *chances, float *inverse) {
    const long p = padded(n, DIM), queries = padded(n, QUERIES), width = heads * DIM;
#pragma omp parallel
    {
        take_tiles(1);
        float *add = room(p);
#pragma omp for collapse(2)
        for (long b = 0; b < batch; b++)
            for (long h = 0; h < heads; h++) {
                const long head = (b * heads + h) * queries;
                bias(mask ? mask + b * n : NULL, n, p, add);
                attend_head(qkv + 3 * b * n * width + h * DIM, add, n, width,
                            out + b * n * width + h * DIM, chances + head * p,
                            inverse + head);
            }
        free(add);
        leave_tiles();
    }
}

/* The gradient of `attend_head`: from that of `out`, `grad`, to that of `qkv`. */
static void attend_head_back(const float *qkv, long n, long width, const half *out,
                             const half *chances, const float *inverse, const float *grad,
                             float *to) {
    const long p = padded(n, DIM), stride = 3 * width, depth = padded(n, 2 * DEPTH) / 2;
    const vec scale = splat(1.0f / sqrtf(DIM));
    float *dk = room(4 * DIM * p + 2 * depth * (p + DIM) + 2 * QUERIES * p);
    float *dv = dk + DIM * p, *total = dv + DIM * p;
    pair *k = (pair *)(total + QUERIES * p), *v = k + DIM * p; /* of rows, of columns */
    pair *twos = v + DIM * p, *own = twos + depth * p;  /* of chances, of ds */
    pair *g_rows = own + depth * p, *q_rows = g_rows + depth * DIM;
    half *ds = (half *)(q_rows + depth * DIM);
    row_pairs(qkv + width, stride, n, p, k);
    column_pairs(qkv + 2 * width, stride, n, p, v);
    memset(twos, 0, (size_t)(2 * depth * (p + DIM)) * sizeof(pair));
    for (long i = 0; i < n; i += QUERIES) {
        pair g[QUERIES * DIM / 2]; /* gradients of rows, pairs of columns */
        vec inner[QUERIES], times[QUERIES];
        vec last_q = splat(0), last_g = splat(0);
        for (long r = 0; r < QUERIES; r++) {
            vec grads = row_of(grad, width, i + r, n), mixed = splat(0);
            if (i + r < n) mixed = load_half(out + (i + r) * width);
            vec query = _mm512_mul_ps(row_of(qkv, stride, i + r, n), scale);
            inner[r] = splat(_mm512_reduce_add_ps(_mm512_mul_ps(grads, mixed)));
            times[r] = splat(inverse[i + r]);
            store_half((half *)g + DIM * r, grads);
            grads = _mm512_mul_ps(grads, times[r]);
            if (r % 2) {
                store_pairs(q_rows + (i + r) / 2 * DIM, last_q, query);
                store_pairs(g_rows + (i + r) / 2 * DIM, last_g, grads);
            }
            last_q = query;
            last_g = grads;
        }
        const half *given = chances + i * p;
        differences(g, v, p, total);
        for (int r = 0; r < QUERIES; r++)
            for (long j = r * p; j < (r + 1) * p; j += 16) {
                vec less = _mm512_sub_ps(load(total + j), inner[r]);
                vec chance = _mm512_mul_ps(load_half(given + j), times[r]);
                store_half(ds + j, _mm512_mul_ps(chance, less));
            }
        for (int r = 0; r < QUERIES; r += 2) {
            const long row = (i + r) / 2 * p;
            pair_up(given + r * p, given + (r + 1) * p, p, twos + row);
            pair_up(ds + r * p, ds + (r + 1) * p, p, own + row);
        }
        float dq[QUERIES * DIM];
        mixtures(ds, k, p, dq);
        for (long r = 0; r < QUERIES && i + r < n; r++)
            store(to + (i + r) * stride, _mm512_mul_ps(load(dq + DIM * r), scale));
    }
    gathered(own, p, q_rows, depth, dk);
    gathered(twos, p, g_rows, depth, dv);
    for (long j = 0; j < n; j++) {
        store(to + width + j * stride, load(dk + DIM * j));
        store(to + 2 * width + j * stride, load(dv + DIM * j));
    }
    free(dk);
}

/* The gradient of `attend`: from that of `out`, `grad`, to that of `qkv`. */
static void attend_back(const float *qkv, long batch, long n, long heads, const half *out,
                        const half *chances, const float *inverse, const float *grad,
                        float *to) {
    const long p = padded(n, DIM), queries = padded(n, QUERIES), width = heads * DIM;
#pragma omp parallel
    {
        const unsigned mode = _mm_getcsr();
        _mm_setcsr(mode | 0x8040); /* denormal numbers, which are slow, are 0 */
        take_tiles(1);
#pragma omp for collapse(2)
        for (long b = 0; b < batch; b++)
            for (long h = 0; h < heads; h++) {
                const long head = (b * heads + h) * queries;
                const long place = b * n * width + h * DIM, at = place + 2 * b * n * width;
                attend_head_back(qkv + at, n, width, out + place, chances + head * p,
                                 inverse + head, grad + place, to + at);
            }
        leave_tiles();
        _mm_setcsr(mode);
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
    long widest = ff > 3 * d ? ff : 3 * d, even = padded(rows, 2 * DEPTH);
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

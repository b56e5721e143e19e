/* Products in the tiles of AMX: 16 rows of 16 pairs, or of 16 float32 sums. Where there are
   none, `tiles_allowed` is 0 and nothing here may be called. */

#include "vectors.h"

#define DEPTH 16 /* pairs in a row of a tile */

#if defined(__AMX_BF16__) && !defined(NO_TILES)

#include <sys/syscall.h>
#include <unistd.h>

static int tiles_allowed;

/* Linux gives the registers to those who ask for them. */
__attribute__((constructor)) static void ask_for_tiles(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    tiles_allowed = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

/* Has to be called by every thread before it uses tiles. With `halves`, rows of tile 4
   have 8 pairs, and tile 5 has 8 rows: half a product in depth. */
static void take_tiles(int halves) {
    struct {
        uint8_t palette, start, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = halves && i == 4 ? 32 : 64;
        shape.rows[i] = halves && i == 5 ? 8 : 16;
    }
    if (tiles_allowed) _tile_loadconfig(&shape);
}

static void leave_tiles(void) {
    if (tiles_allowed) _tile_release();
}

/* to[i] = add[i], or 0 without it, plus the sum over k of a[i][k] b[k], for 16 rows or,
   with `two`, 32. */
static inline __attribute__((always_inline)) void strip(
    const int two, const pair *a, long a_row, const pair *b, long depth, long columns,
    const float *add, float *to) {
    const long row = 4 * columns, down = 16 * columns;
    for (long j = 0; j < columns; j += 32) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        if (add) {
            _tile_loadd(0, add + j, row);
            _tile_loadd(1, add + j + 16, row);
        }
        if (add && two) {
            _tile_loadd(2, add + down + j, row);
            _tile_loadd(3, add + down + j + 16, row);
        }
        for (long k = 0; k < depth; k += DEPTH) {
            _tile_loadd(4, a + k, 4 * a_row);
            _tile_loadd(6, b + k * columns + j, row);
            _tile_loadd(7, b + k * columns + j + 16, row);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (two) {
                _tile_loadd(5, a + 16 * a_row + k, 4 * a_row);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, to + j, row);
        _tile_stored(1, to + j + 16, row);
        if (two) {
            _tile_stored(2, to + down + j, row);
            _tile_stored(3, to + down + j + 16, row);
        }
    }
}

/* to[i][k] = from[k][i] of 16 x 16 pairs or floats. */
static inline void turn(const void *from, long step, void *to, long to_step) {
    __m512i x[16], y[16];
    for (int r = 0; r < 16; r++)
        x[r] = _mm512_loadu_si512((const pair *)from + r * step);
    for (int r = 0; r < 16; r += 2) {
        y[r] = _mm512_unpacklo_epi32(x[r], x[r + 1]);
        y[r + 1] = _mm512_unpackhi_epi32(x[r], x[r + 1]);
    }
    for (int r = 0; r < 16; r += 4)
        for (int s = 0; s < 2; s++) {
            x[r + 2 * s] = _mm512_unpacklo_epi64(y[r + s], y[r + s + 2]);
            x[r + 2 * s + 1] = _mm512_unpackhi_epi64(y[r + s], y[r + s + 2]);
        }
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 16; s += 8) {
            y[s + r] = _mm512_shuffle_i32x4(x[s + r], x[s + r + 4], 0x88);
            y[s + r + 4] = _mm512_shuffle_i32x4(x[s + r], x[s + r + 4], 0xdd);
        }
    for (int r = 0; r < 8; r++) {
        pair *row = (pair *)to + r * to_step;
        _mm512_storeu_si512(row, _mm512_shuffle_i32x4(y[r], y[r + 8], 0x88));
        row += 8 * to_step;
        _mm512_storeu_si512(row, _mm512_shuffle_i32x4(y[r], y[r + 8], 0xdd));
    }
}

/* As much of `product` as fits into tiles; returns how many rows that is. */
static long product_in_tiles(const pair *a, long a_row, long a_step, const pair *b,
                             long depth, long rows, long columns, const float *add,
                             float *to) {
#pragma omp parallel
    {
        pair *turned = a_step == 1 ? NULL : (pair *)room(32 * depth);
        take_tiles(0);
#pragma omp for
        for (long i = 0; i < rows / 16; i += 2) {
            const pair *own = a + 16 * i * a_row;
            const float *first = add ? add + 16 * i * columns : NULL;
            float *out = to + 16 * i * columns;
            for (long k = 0; turned && k < depth; k += 16)
                for (long r = 0; r < 32; r += 16)
                    turn(own + k * a_step + r, a_step, turned + r * depth + k, depth);
            if (turned)
                strip(1, turned, depth, b, depth, columns, first, out);
            else if (i + 1 < rows / 16)
                strip(1, own, a_row, b, depth, columns, first, out);
            else
                strip(0, own, a_row, b, depth, columns, first, out);
        }
        leave_tiles();
        free(turned);
    }
    return rows / 16 * 16;
}

/* The same as those of block.c, with halves. */

static inline void differences_in_tiles(const pair *g, const pair *v, long p, float *to) {
    _tile_loadd(4, g, 32);
    for (long j = 0; j < p; j += 16) {
        _tile_zero(0);
        _tile_loadd(5, v + j, 4 * p);
        _tile_dpbf16ps(0, 4, 5);
        _tile_stored(0, to + j, 4 * p);
    }
}

static inline void mixtures_in_tiles(const pair *weights, const pair *rows, long p,
                                     float *to) {
    long j = 0;
    _tile_zero(0);
    for (; j + DEPTH <= p / 2; j += DEPTH) {
        _tile_loadd(2, weights + j, 2 * p);
        _tile_loadd(3, rows + 16 * j, 64);
        _tile_dpbf16ps(0, 2, 3);
    }
    if (j < p / 2) {
        _tile_loadd(4, weights + j, 2 * p);
        _tile_loadd(5, rows + 16 * j, 64);
        _tile_dpbf16ps(0, 4, 5);
    }
    _tile_stored(0, to, 64);
}

static void gathered_in_tiles(const pair *weights, long p, const pair *rows, long depth,
                              float *to) {
    pair turned[depth * 16];
    float sums[16 * 16];
    for (long r = 0; r < depth; r += DEPTH) turn(rows + 16 * r, 16, turned + r, depth);
    for (long j = 0; j < p; j += 16) {
        _tile_zero(0);
        for (long r = 0; r < depth; r += DEPTH) {
            _tile_loadd(2, turned + r, 4 * depth);
            _tile_loadd(3, weights + r * p + j, 4 * p);
            _tile_dpbf16ps(0, 2, 3);
        }
        _tile_stored(0, sums, 64);
        turn(sums, 16, to + 16 * j, 16);
    }
}

#else

#define tiles_allowed 0
#define take_tiles(halves)
#define leave_tiles()
#define product_in_tiles(...) 0
#define differences_in_tiles(...)
#define mixtures_in_tiles(...)
#define gathered_in_tiles(...)

#endif

/* `Outing` of renco/insertions.py, state by state.

   Nothing is reordered or contracted: a path with another node is another path. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "squeezed.h"

#define GAIN 1e-4f  /* what is less is rounding */
#define SHORT 1e-3f /* shorter detours are as good as none */
#define AWAY 1e30f

typedef struct {
    int *path;       /* from where the vehicle is to the destination */
    long legs;
    double length;
} Path;

/* What a state needs. The vehicle is the first node, the destination the last. */
typedef struct {
    long n;
    float limit;
    const float *prize;
    uint32_t *key;   /* of each node: what its chance is made from */
    float *blur;     /* how much the score of each node counts, now */
    float *apart;    /* n x n, distances */
    float *along;    /* distances between the nodes of the path, in its order */
    float *gain;
    float *cost;     /* of a detour to each node that is not on the path, */
    int *after;      /* which leaves it after this node */
    int *on;         /* whether a node is on the path */
    Path now, best;
} Outing;

static Outing room_for(long n) {
    size_t wide = (size_t)n;
    Outing o = {.n = n};
    float *f = malloc((2 * wide * wide + 3 * wide) * sizeof(float));
    int *i = malloc(4 * wide * sizeof(int));
    o.key = malloc(wide * sizeof *o.key);
    if (!f || !i || !o.key) abort();
    o.apart = f, o.along = f + wide * wide, f += 2 * wide * wide;
    o.cost = f, o.gain = f + wide, o.blur = f + 2 * wide;
    o.on = i, o.after = i + wide, o.now.path = i + 2 * wide, o.best.path = i + 3 * wide;
    return o;
}

static void give_back(Outing *o) { free(o->apart), free(o->on), free(o->key); }

/* Mixes bits (the finalizer of MurmurHash3, which is in the public domain). */
static inline uint32_t mixed(uint32_t x) {
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static inline uint32_t bits(float x) {
    uint32_t found;
    memcpy(&found, &x, sizeof found);
    return found;
}

/* A chance from 0 to 1. */
static inline float chance(uint32_t x) { return (float)(mixed(x) >> 8) * 0x1p-24f; }

static inline float way(const Outing *o, int a, int b) { return o->apart[a * o->n + b]; }

/* Finds the cheapest detour to a node. */
static void look(Outing *o, int x) {
    const float *row = o->apart + x * o->n;
    const int *path = o->now.path;
    float best = AWAY;
    for (long i = 0; i < o->now.legs; i++) {
        float cost = row[path[i]] + row[path[i + 1]] - way(o, path[i], path[i + 1]);
        if (cost < best) best = cost, o->after[x] = path[i];
    }
    o->cost[x] = best;
}

static void look_at_all(Outing *o) {
    for (int x = 1; x < o->n - 1; x++)
        if (!o->on[x]) look(o, x);
}

static void insert(Outing *o, int x) {
    int *at = o->now.path;
    while (*at != o->after[x]) at++;
    memmove(at + 2, at + 1, (size_t)(o->now.legs - (at - o->now.path)) * sizeof(int));
    at[1] = x, o->now.legs++, o->on[x] = 1;
    o->now.length += o->cost[x];
    const float *here = o->apart + x * o->n;
    for (int y = 1; y < o->n - 1; y++) {
        const float *row = o->apart + y * o->n;
        if (o->on[y]) continue;
        if (o->after[y] == at[0]) {
            look(o, y);
            continue;
        }
        float before = row[at[0]] + row[x] - here[at[0]];
        if (before < o->cost[y]) o->cost[y] = before, o->after[y] = at[0];
        float behind = row[x] + row[at[2]] - here[at[2]];
        if (behind < o->cost[y]) o->cost[y] = behind, o->after[y] = x;
    }
}

/* Inserts what fits: much prize for a short detour first. Returns whether anything did. */
static int fill(Outing *o) {
    for (int any = 0;; any = 1) {
        int best = 0;
        float most = 0;
        for (int x = 1; x < o->n - 1; x++) {
            if (o->on[x] || o->now.length + o->cost[x] > o->limit) continue;
            float cost = o->cost[x] > SHORT ? o->cost[x] : SHORT;
            float score = o->prize[x] * o->prize[x] / cost * o->blur[x];
            if (score > most) most = score, best = x;
        }
        if (!best) return any;
        insert(o, best);
    }
}

static void turn(int *path, long from, long to) {
    for (; from < to; from++, to--) {
        int node = path[from];
        path[from] = path[to], path[to] = node;
    }
}

/* Takes the best move while there is one: turns a stretch; if none is left, moves one to
   three nodes in a row elsewhere. Returns whether anything changed. */
static int shorten(Outing *o) {
    int *path = o->now.path;
    float *gain = o->gain;
    for (int any = 0;; any = 1) {
        long m = o->now.legs + 1, from = 0, to = 0, size = 0;
        int flip = 0;
        const float *q = o->along;
        float best = GAIN;
        for (long i = 0; i < m; i++)
            for (long k = 0; k < m; k++) o->along[i * m + k] = way(o, path[i], path[k]);
        for (long i = 0; i + 2 < m; i++) {
            const float *a = q + i * m, *b = a + m;
            for (long j = i + 2; j + 1 < m; j++)
                gain[j] = a[i + 1] + q[j * m + j + 1] - a[j] - b[j + 1];
            for (long j = i + 2; j + 1 < m; j++)
                if (gain[j] > best) best = gain[j], from = i + 1, to = j;
        }
        if (to) {
            turn(path, from, to);
            o->now.length -= best;
            continue;
        }
        for (long s = 1; s <= 3; s++) {
            for (long i = 1; i + s < m; i++) {
                long e = i + s - 1;
                float off = q[(i - 1) * m + i] + q[e * m + e + 1] - q[(i - 1) * m + e + 1];
                if (off <= best) continue;
                for (int f = 0; f < 2; f++) {
                    const float *left = q + (f ? e : i) * m, *right = q + (f ? i : e) * m;
                    for (long k = 0; k + 1 < m; k++) {
                        float on = left[k] + right[k + 1] - q[k * m + k + 1];
                        gain[k] = off - (on > 0 ? on : 0);
                    }
                    for (long k = 0; k + 1 < m; k++)
                        if (gain[k] > best && (k < i - 1 || k > e))
                            best = gain[k], from = i, to = k, size = s, flip = f;
                }
            }
        }
        if (!size) return any;
        long end = from + size - 1;
        if (!flip) turn(path, from, end);
        if (to > end) turn(path, end + 1, to), turn(path, from, to);
        else turn(path, to + 1, from - 1), turn(path, to + 1, end);
        o->now.length -= best;
    }
}

static void complete(Outing *o) {
    do look_at_all(o);
    while (fill(o) && shorten(o));
}

static double worth(const Outing *o) {
    double sum = 0;
    for (long i = 1; i < o->now.legs; i++) sum += o->prize[o->now.path[i]];
    return sum;
}

static void copy(Path *to, const Path *from) {
    memcpy(to->path, from->path, (size_t)(from->legs + 1) * sizeof(int));
    to->legs = from->legs, to->length = from->length;
}

/* What the node at place i of the path costs in length. */
static float spared(const Outing *o, long i) {
    const int *at = o->now.path + i;
    return way(o, at[-1], at[0]) + way(o, at[0], at[1]) - way(o, at[-1], at[1]);
}

static void leave_out(Outing *o, long i) {
    int *at = o->now.path + i;
    o->now.length -= spared(o, i);
    o->on[*at] = 0;
    memmove(at, at + 1, (size_t)(o->now.legs - i) * sizeof(int));
    o->now.legs--;
}

/* Leaves out little prize for a long detour, until the rest keeps to the limit. */
static void empty(Outing *o) {
    while (o->now.legs > 1 && o->now.length > o->limit) {
        long worst = 1;
        float least = AWAY;
        for (long i = 1; i < o->now.legs; i++) {
            float cost = spared(o, i), prize = o->prize[o->now.path[i]];
            float score = prize * prize / (cost > SHORT ? cost : SHORT);
            if (score < least) least = score, worst = i;
        }
        leave_out(o, worst);
    }
}

/* Begins with what is left of the plan of the state before, if there was one. */
static void begin(Outing *o, const float *place) {
    int *path = o->now.path;
    long legs = 1;
    memset(o->on, 0, (size_t)o->n * sizeof(int));
    path[0] = 0;
    /* The path goes on behind the node that was chosen, or back where it came from: where
       there is more of it. */
    long ahead = 0, behind = 0;
    for (int x = 1; x < o->n - 1; x++)
        ahead += place[x] > place[0], behind += place[x] > 0 && place[x] < place[0];
    float sign = behind > ahead ? -1 : 1;
    for (int x = 1; x < o->n - 1; x++) {
        if (place[x] == 0 || sign * place[x] < sign * place[0]) continue;
        long i = legs++;
        for (; i > 1 && sign * place[path[i - 1]] > sign * place[x]; i--) path[i] = path[i - 1];
        path[i] = x, o->on[x] = 1;
    }
    path[legs] = (int)o->n - 1;
    o->now.legs = legs, o->now.length = 0;
    for (long i = 0; i < legs; i++) o->now.length += way(o, path[i], path[i + 1]);
    empty(o);
}

/* Leaves out a stretch and fills the path with blurred scores; keeps what is better. */
static void vary(Outing *o, long times) {
    double most = worth(o);
    uint32_t seed = mixed(bits(o->limit));
    copy(&o->best, &o->now);
    for (uint32_t t = 0; t < (uint32_t)times && o->now.legs > 1; t++, seed += 0x9e3779b9u) {
        long open = o->now.legs - 1, size = 1 + (long)(chance(seed) * LONGEST);
        if (size > open) size = open;
        long from = 1 + (long)(chance(seed ^ 1) * (float)(open + 1 - size));
        for (long i = 0; i < size; i++) leave_out(o, from);
        for (long x = 0; x < o->n; x++) o->blur[x] = 0.4f + 2 * chance(o->key[x] + seed);
        complete(o);
        double now = worth(o);
        if (now > most || (now == most && o->now.length < o->best.length)) {
            most = now, copy(&o->best, &o->now);
            continue;
        }
        copy(&o->now, &o->best);
        memset(o->on, 0, (size_t)o->n * sizeof(int));
        for (long i = 1; i < o->now.legs; i++) o->on[o->now.path[i]] = 1;
    }
    look_at_all(o);
}

/* Writes what the plan says about each node. */
static void tell(const Outing *o, const float *xy, float *place, float *to) {
    const int *path = o->now.path;
    long legs = o->now.legs;
    float price = legs > 1 ? (float)(worth(o) / o->limit) : 0;
    memset(place, 0, (size_t)o->n * sizeof(float));
    for (long x = 0; x < o->n; x++) {
        float *told = to + x * TOLD;
        memset(told, 0, TOLD * sizeof(float));
        told[0] = squeezed(o->limit - (float)o->now.length);
        told[1] = logf((float)legs) / 2;
        told[2] = squeezed(price);
    }
    for (long i = 1; i < legs; i++) {
        float *told = to + path[i] * TOLD;
        place[path[i]] = (float)i;
        told[3] = 1;
        told[4] = logf(1.0f + (float)i) / 2;
    }
    offset(xy, xy + 2 * path[1], to + 10);
    for (int x = 1; x < o->n - 1; x++) {
        float *told = to + x * TOLD;
        long i = (long)place[o->on[x] ? x : o->after[x]];
        int before = path[o->on[x] ? i - 1 : i], after = path[i + 1];
        float cost = o->on[x] ? spared(o, i) : o->cost[x];
        float now = way(o, 0, x) + way(o, x, path[1]) - way(o, 0, path[1]);
        told[5] = squeezed(cost);
        told[6] = squeezed(o->prize[x] - price * cost);
        told[7] = squeezed(now);
        offset(xy + 2 * x, xy + 2 * before, told + 8);
        offset(xy + 2 * x, xy + 2 * after, told + 10);
    }
}

/* xy: batch x n x 2. prize: batch x n. limit: batch, in units of xy. place: batch x n, where
   nodes stand in the plan of the state before, 0 for others; changed. to: batch x n x TOLD. */
void insertions(const float *xy, const float *prize, const float *limit, long times,
                long batch, long n, float *place, float *to) {
    if (n < 3) return;
#pragma omp parallel
    {
        Outing o = room_for(n);
#pragma omp for
        for (long b = 0; b < batch; b++) {
            const float *at = xy + b * n * 2;
            for (long i = 0; i < n; i++) {
                o.blur[i] = 1;
                o.key[i] = mixed(bits(at[2 * i]) + mixed(bits(at[2 * i + 1])));
                for (long j = 0; j < n; j++) {
                    float dx = at[2 * i] - at[2 * j], dy = at[2 * i + 1] - at[2 * j + 1];
                    o.apart[i * n + j] = sqrtf(dx * dx + dy * dy);
                }
            }
            o.prize = prize + b * n, o.limit = limit[b];
            begin(&o, place + b * n);
            complete(&o);
            vary(&o, times);
            tell(&o, at, place + b * n, to + b * n * TOLD);
        }
        give_back(&o);
    }
}

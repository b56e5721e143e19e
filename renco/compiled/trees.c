/* `_by_pytorch` of renco/trees.py, state by state.

   Vectors are those of GCC and Clang, whatever the processor makes of them. No sum is
   reordered or contracted: a tree that differs by one edge is another tree. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "squeezed.h"

#define LANES 16

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int Ints __attribute__((vector_size(4 * LANES)));
#define AWAY 1e30f /* weight of what is not there */

/* What a state needs; arrays of `wide` floats, `open` of which count. */
typedef struct {
    long open, wide;
    float *apart;             /* open x wide, distances between open nodes */
    float *first, *last;      /* distances to the current node and to the destination */
    float *price;             /* what an edge costs more at each node */
    float *key, *done;        /* Prim: the cheapest edge to each node, AWAY once it is in */
    float *worst;             /* the heaviest edge on the way to each node */
    int *from, *parent, *order, *degree, *depth, *size, *heir, *off;
} Tree;

static Tree room(long open) {
    Tree t = {.open = open, .wide = (open + LANES - 1) / LANES * LANES};
    size_t wide = (size_t)t.wide;
    float *f = aligned_alloc(64, (wide * (size_t)(open + 7) + LANES) / LANES * LANES * 4);
    int *i = aligned_alloc(64, wide * 8 * sizeof(int));
    if (!f || !i) abort();
    t.apart = f, f += wide * (size_t)open;
    float **floats[] = {&t.first, &t.last, &t.price, &t.key, &t.done, &t.worst};
    for (int a = 0; a < 6; a++, f += wide) *floats[a] = f;
    int **ints[] = {&t.from, &t.parent, &t.order, &t.degree,
                    &t.depth, &t.size, &t.heir, &t.off};
    for (int a = 0; a < 8; a++, i += wide) *ints[a] = i;
    return t;
}

static void distances(const float *xy, long open, long wide, const float *to, float *found) {
    for (long j = 0; j < wide; j++) {
        float dx = j < open ? xy[2 * j] - to[0] : 0, dy = j < open ? xy[2 * j + 1] - to[1] : 0;
        found[j] = j < open ? sqrtf(dx * dx + dy * dy) : AWAY;
    }
}

static inline Ints either(Ints which, Ints a, Ints b) { return (which & a) | (~which & b); }

/* The first of the smallest. */
static inline int smallest(Floats least, Ints where, long open) {
    float low = least[0];
    int found = (int)open;
    for (int l = 1; l < LANES; l++) low = least[l] < low ? least[l] : low;
    for (int l = 0; l < LANES; l++)
        found = least[l] == low && where[l] < found ? where[l] : found;
    return found < open ? found : 0;
}

/* Where an end is tied to the open nodes: its cheapest edge. */
static int tied(const Tree *t, const float *away) {
    int at = 0;
    for (long j = 1; j < t->open; j++)
        if (away[j] + t->price[j] < away[at] + t->price[at]) at = (int)j;
    return at;
}

/* Prim's algorithm: the cheapest spanning tree of the open nodes, from a root. */
static void grow(Tree *t, int root) {
    long open = t->open, wide = t->wide;
    Floats *key = (Floats *)t->key, *done = (Floats *)t->done;
    const Floats *price = (const Floats *)t->price;
    Ints *from = (Ints *)t->from, lane;
    for (int l = 0; l < LANES; l++) lane[l] = l;
    for (long j = 0; j < wide; j++) t->key[j] = AWAY, t->done[j] = j < open ? 0 : AWAY;
    t->parent[root] = -1;
    t->order[0] = root;
    t->done[root] = AWAY;
    int at = root;
    for (long step = 1; step < open; step++) {
        const Floats *row = (const Floats *)(t->apart + at * wide);
        Floats least = AWAY + (Floats){0};
        Ints where = (int)open + (Ints){0}, place = lane;
        float paid = t->price[at];
        for (long v = 0; v < wide / LANES; v++, place += LANES) {
            Floats edge = row[v] + price[v] + paid;
            Ints better = edge < key[v];
            from[v] = either(better, at + (Ints){0}, from[v]);
            key[v] = (Floats)either(better, (Ints)edge, (Ints)key[v]);
            Floats known = key[v] + done[v];
            better = known < least;
            where = either(better, place, where);
            least = (Floats)either(better, (Ints)known, (Ints)least);
        }
        at = smallest(least, where, open);
        t->parent[at] = t->from[at];
        t->order[step] = at;
        t->done[at] = AWAY;
    }
}

static void count(Tree *t, int root, int end) {
    for (long j = 0; j < t->open; j++) t->degree[j] = 0;
    for (long i = 1; i < t->open; i++) {
        int at = t->order[i];
        t->degree[at]++;
        t->degree[t->parent[at]]++;
    }
    t->degree[root]++;
    t->degree[end]++;
}

/* Writes what the tree says about each open node; xy: that of the open nodes. */
static void tell(Tree *t, int root, int end, const float *xy, float *to) {
    long open = t->open;
    const float *price = t->price;
    for (long j = 0; j < open; j++) t->size[j] = 1, t->heir[j] = -1, t->off[j] = 1;
    t->depth[root] = 0;
    t->worst[root] = -AWAY;
    for (long i = 1; i < open; i++) {
        int at = t->order[i], up = t->parent[at];
        float edge = t->apart[at * t->wide + up] + price[at] + price[up];
        t->depth[at] = t->depth[up] + 1;
        t->worst[at] = edge > t->worst[up] ? edge : t->worst[up];
    }
    for (long i = open - 1; i > 0; i--) {
        int at = t->order[i], up = t->parent[at], heir = t->heir[up];
        t->size[up] += t->size[at];
        if (heir < 0 || t->size[at] >= t->size[heir]) t->heir[up] = at;
    }
    for (int at = end; at >= 0; at = t->parent[at]) t->off[at] = 0;
    for (long i = 0; i < open; i++) {
        int at = t->order[i];
        if (t->off[at]) t->off[at] = t->off[t->parent[at]] + 1;
    }
    float low = t->first[root] + price[root], low_end = t->last[end] + price[end];
    for (long j = 0; j < open; j++, to += TOLD) {
        float edge = t->first[j] + price[j];
        float cut = low > t->worst[j] ? low : t->worst[j];
        to[0] = squeezed(price[j]);
        to[1] = squeezed(edge - low);
        to[2] = squeezed(t->last[j] + price[j] - low_end);
        to[3] = squeezed(edge - cut);
        to[4] = (float)(t->degree[j] - 2);
        to[5] = logf(1.0f + (float)t->depth[j]) / 2;
        to[6] = logf((float)t->size[j]) / 2;
        to[7] = logf(1.0f + (float)t->off[j]);
        memset(to + 8, 0, 4 * sizeof(float));
        if (t->parent[j] >= 0) offset(xy + 2 * j, xy + 2 * t->parent[j], to + 8);
        if (t->heir[j] >= 0) offset(xy + 2 * j, xy + 2 * t->heir[j], to + 10);
    }
}

/* One state. */
static void ascend(Tree *t, const float *xy, long n, const float *steps, long count_steps,
                   float *price, float *to) {
    long open = t->open, wide = t->wide;
    const float *inner = xy + 2;
    for (long i = 0; i < open; i++)
        distances(inner, open, wide, inner + 2 * i, t->apart + i * wide);
    distances(inner, open, wide, xy, t->first);
    distances(inner, open, wide, xy + 2 * (n - 1), t->last);
    for (long j = 0; j < wide; j++) t->price[j] = j < open ? price[j + 1] : 0;
    int root, end;
    for (long i = 0;; i++) {
        root = tied(t, t->first), end = tied(t, t->last);
        grow(t, root);
        count(t, root, end);
        if (i == count_steps) break;
        for (long j = 0; j < open; j++)
            t->price[j] += steps[i] * (float)(t->degree[j] - 2);
    }
    for (long j = 0; j < open; j++) price[j + 1] = t->price[j];
    tell(t, root, end, inner, to + TOLD);
}

/* xy: batch x n x 2. price: batch x n, changed. to: batch x n x TOLD, zero. */
void trees(const float *xy, const float *steps, long count_steps, long batch, long n,
           float *price, float *to) {
    if (n < 3) return;
#pragma omp parallel
    {
        Tree t = room(n - 2);
#pragma omp for
        for (long b = 0; b < batch; b++)
            ascend(&t, xy + b * n * 2, n, steps, count_steps, price + b * n, to + b * n * TOLD);
        free(t.apart);
        free(t.from);
    }
}

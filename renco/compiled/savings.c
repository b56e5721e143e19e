/* `_by_python` of renco/savings.py, state by state.

   Nothing is reordered or contracted: routes that are joined otherwise are other routes. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "routes.h"
#include "squeezed.h"

#define NONE (-1)
#define AWAY 1e30f

typedef struct {
    float saving;
    int a, b;
} Pair;

/* What a state needs. The vehicle is the node after the open ones. */
typedef struct {
    long open;
    float *x, *y;               /* of the nodes, and of the depot after them */
    float *apart, *home;        /* distances, the depot's last; its own row */
    float *load;                /* of each route, by its number */
    int *route, *next, *size;   /* number of the route, nodes beside it, nodes of a route */
    int *way;                   /* what the vehicle visits next, in order */
    Pair *pairs, *spare;
    Routes routes;              /* the same plan, to make it shorter */
} Plan;

static Plan room_for(long open) {
    size_t n = (size_t)open + 1, wide = n + 1;
    Plan p = {.open = open, .routes = {.open = open, .wide = open + 2}};
    float *f = malloc((wide * wide + 4 * wide) * sizeof(float));
    int *i = malloc((13 + NEAREST) * wide * sizeof(int));
    p.pairs = malloc(2 * n * (NEAREST + 1) * sizeof(Pair));
    p.routes.before = malloc(4 * wide * sizeof(double));
    if (!f || !i || !p.pairs || !p.routes.before) abort();
    p.spare = p.pairs + n * (NEAREST + 1);
    p.apart = f, p.home = f + n * wide, f += wide * wide;
    float **floats[] = {&p.load, &p.x, &p.y, &p.routes.load};
    for (int a = 0; a < 4; a++, f += wide) *floats[a] = f;
    int **ints[] = {&p.route, &p.size, &p.way, &p.routes.known, &p.routes.far,
                    &p.routes.place, &p.routes.todo};
    for (int a = 0; a < 7; a++, i += wide) *ints[a] = i;
    p.next = i, p.routes.tour = i + 2 * wide, p.routes.line = i + 4 * wide;
    p.routes.near = i + 6 * wide;
    p.routes.apart = p.apart, p.routes.sum = p.routes.before + 2 * wide;
    return p;
}

static void give_back(Plan *p) {
    free(p->apart), free(p->route), free(p->routes.before);
    free(p->pairs < p->spare ? p->pairs : p->spare);
}

static inline float distance(const float *a, const float *b) {
    float dx = a[0] - b[0], dy = a[1] - b[1];
    return sqrtf(dx * dx + dy * dy);
}

static void distances(Plan *p, const float *xy) {
    long n = p->open + 1;
    for (long i = 0; i <= n; i++) {
        const float *at = xy + 2 * (i < p->open ? i + 1 : i == p->open ? 0 : n);
        p->x[i] = at[0], p->y[i] = at[1];
    }
    for (long i = 0; i <= n; i++) {
        float *to = p->apart + i * (n + 1);
        const float *restrict x = p->x, *restrict y = p->y, here_x = x[i], here_y = y[i];
        for (long j = 0; j <= n; j++) {
            float dx = here_x - x[j], dy = here_y - y[j];
            to[j] = sqrtf(dx * dx + dy * dy);
        }
    }
}

#define DIGITS 11
#define VALUES (1 << DIGITS)

/* Largest saving first, equal ones as they came. Of positive floats, bits are in order. */
static void sort(Plan *p, long count) {
    for (int shift = 0; shift < 32; shift += DIGITS) {
        long ends[VALUES + 1] = {0};
        for (long i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &p->pairs[i].saving, sizeof bits);
            ends[(~bits >> shift & (VALUES - 1)) + 1]++;
        }
        for (int v = 0; v < VALUES; v++) ends[v + 1] += ends[v];
        for (long i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &p->pairs[i].saving, sizeof bits);
            p->spare[ends[~bits >> shift & (VALUES - 1)]++] = p->pairs[i];
        }
        Pair *sorted = p->spare;
        p->spare = p->pairs, p->pairs = sorted;
    }
}

/* Writes the pairs of near nodes whose routes may be worth joining. */
static long gather(Plan *p) {
    long n = p->open + 1, count = 0;
    for (long i = 0; i < n; i++) {
        const float *row = p->apart + i * (n + 1);
        float found[NEAREST];
        int *who = p->routes.near + i * NEAREST, known = 0;
        /* The vehicle may go anywhere. */
        for (long j = 0; j < p->open && i < p->open; j++) {
            if (j == i || (known == NEAREST && row[j] >= found[known - 1])) continue;
            int at = known < NEAREST ? known++ : NEAREST - 1;
            for (; at && found[at - 1] > row[j]; at--)
                found[at] = found[at - 1], who[at] = who[at - 1];
            found[at] = row[j], who[at] = (int)j;
        }
        p->routes.known[i] = known;
        long others = i < p->open ? known : p->open;
        for (long c = 0; c < others; c++) {
            int j = i < p->open ? who[c] : (int)c;
            float saving = p->home[i] + p->home[j] - SHAPE * row[j] +
                           ASYMMETRY * fabsf(p->home[i] - p->home[j]);
            if (saving > 0) p->pairs[count++] = (Pair){saving, (int)i, j};
        }
    }
    sort(p, count);
    return count;
}

/* Clarke and Wright: joins routes end to end, the largest saving first. */
static void join(Plan *p, const float *demand, float room) {
    long n = p->open + 1, count = gather(p);
    for (long i = 0; i < n; i++) {
        p->route[i] = (int)i, p->size[i] = 1, p->next[2 * i] = p->next[2 * i + 1] = NONE;
        p->load[i] = i < p->open ? demand[i] : 1 - room;
    }
    p->size[p->open] = 0;
    p->next[2 * p->open] = (int)p->open; /* where it came from: it has one end only */
    for (long c = 0; c < count; c++) {
        int a = p->pairs[c].a, b = p->pairs[c].b, kept = p->route[a], gone = p->route[b];
        if (kept == gone || p->next[2 * a + 1] != NONE || p->next[2 * b + 1] != NONE) continue;
        if (p->load[kept] + p->load[gone] > 1 + SLACK) continue;
        for (int side = 0; side < 2; side++) {
            int from = side ? b : a, to = side ? a : b;
            int *link = p->next + 2 * from;
            link[link[0] != NONE] = to;
        }
        p->load[kept] += p->load[gone];
        p->size[kept] += p->size[gone];
        for (long i = 0; i < n; i++)
            if (p->route[i] == gone) p->route[i] = kept;
    }
}

typedef struct {
    float home;
    int node;
} Away;

static int farther(const void *a, const void *b) {
    const Away *x = a, *y = b;
    return x->home < y->home ? 1 : x->home > y->home ? -1 : x->node - y->node;
}

/* Writes the routes in a row, that of the vehicle first. */
static void line_up(Plan *p) {
    Routes *r = &p->routes;
    int depot = (int)p->open + 1, vehicle = (int)p->open;
    for (long j = 0; j < p->open; j++) r->todo[j] = 1;
    r->tour[0] = vehicle, r->length = 1;
    for (long f = -1; f < p->open; f++) {
        int at = f < 0 ? p->next[2 * vehicle + 1] : r->far[f], before = f < 0 ? vehicle : NONE;
        if (f >= 0 && (!r->todo[at] || p->next[2 * at + 1] != NONE)) continue;
        while (at != NONE) {
            int *link = p->next + 2 * at;
            int after = before != NONE && link[0] == before ? link[1] : link[0];
            r->tour[r->length++] = at, r->todo[at] = 0;
            before = at, at = after;
        }
        r->tour[r->length++] = depot;
    }
}

/* Makes the routes shorter. */
static void shorten(Plan *p, const float *demand, float room) {
    Routes *r = &p->routes;
    long open = p->open, n = open + 1;
    Away *order = (Away *)p->pairs;
    for (long j = 0; j < open; j++) {
        r->load[j] = demand[j];
        order[j] = (Away){p->home[j], (int)j};
    }
    r->load[open] = 1 - room, r->load[n] = 0;
    qsort(order, (size_t)open, sizeof *order, farther);
    for (long j = 0; j < open; j++) r->far[j] = order[j].node;
    line_up(p);
    improve(r);
    for (long i = 0; i < n; i++) p->size[i] = 0;
    for (long i = 0; i < r->length; i++) {
        int node = r->tour[i], line = r->line[i];
        p->load[line] = (float)r->sum[line];
        if (node == n) continue;
        int left = i ? r->tour[i - 1] : node, right = r->tour[i + 1];
        p->route[node] = line;
        p->size[line] += node < open;
        p->next[2 * node] = left == n ? NONE : left;
        p->next[2 * node + 1] = right == n ? NONE : right;
    }
}

/* Writes what the plan says about each node; xy: of the whole state. */
static void tell(Plan *p, const float *xy, float *to) {
    long open = p->open, n = open + 1;
    const float *depot = xy + 2 * (open + 1), *inner = xy + 2;
    int own = p->route[open], others = 0, length = 0, *way = p->way;
    for (long i = 0; i < n; i++) others += p->size[i] > 0 && i != own;
    for (int before = (int)open, at = p->next[2 * open + 1]; at != NONE;) {
        way[length++] = at;
        int *link = p->next + 2 * at, after = link[0] == before ? link[1] : link[0];
        before = at, at = after;
    }
    for (long i = 0; i <= open + 1; i++) {
        float *told = to + i * TOLD;
        memset(told, 0, TOLD * sizeof(float));
        told[0] = 1 - p->load[own];
        told[1] = logf(1.0f + (float)others) / 2;
    }
    for (long j = 0; j < open; j++) {
        float *told = to + (j + 1) * TOLD;
        const float *row = p->apart + j * (n + 1), *here = inner + 2 * j;
        int mine = p->route[j] == own, before = (int)open;
        float best = mine ? 0 : AWAY;
        for (int i = 0; i <= length && !mine; i++) {
            int last = i == length, after = last ? NONE : way[i];
            float leg = last ? p->home[before] : p->apart[before * (n + 1) + after];
            float more = row[before] + (last ? p->home[j] : row[after]) - leg;
            best = more < best ? more : best;
            before = after;
        }
        const float *side[2];
        float far[2];
        int *link = p->next + 2 * j;
        for (int s = 0; s < 2; s++) {
            side[s] = link[s] == NONE ? depot : link[s] == open ? xy : inner + 2 * link[s];
            far[s] = link[s] == NONE ? p->home[j] : row[link[s]];
        }
        float spared = far[0] + far[1] - distance(side[0], side[1]);
        int nearer = far[1] < far[0];
        told[2] = (float)mine;
        told[4] = p->load[p->route[j]];
        told[5] = logf((float)p->size[p->route[j]]) / 2;
        told[6] = squeezed(best);
        told[7] = squeezed(spared);
        told[8] = squeezed(p->home[open] + p->home[j] - row[open]);
        offset(here, side[nearer], told + 9);
        offset(here, side[!nearer], told + 11);
    }
    for (int i = 0; i < length; i++) to[(way[i] + 1) * TOLD + 3] = logf(2.0f + (float)i) / 2;
}

/* xy: batch x n x 2. demand: batch x n, room: batch, both in shares of Q. to: batch x n x
   TOLD. */
void savings(const float *xy, const float *demand, const float *room, long batch, long n,
             float *to) {
    if (n < 3) return;
#pragma omp parallel
    {
        Plan p = room_for(n - 2);
#pragma omp for
        for (long b = 0; b < batch; b++) {
            const float *at = xy + b * n * 2;
            distances(&p, at);
            join(&p, demand + b * n + 1, room[b]);
            shorten(&p, demand + b * n + 1, room[b]);
            tell(&p, at, to + b * n * TOLD);
        }
        give_back(&p);
    }
}

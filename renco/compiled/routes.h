/* `Routes` of renco/routes.py: makes routes shorter, all of them at once.

   All routes stand in one row, the tour: the vehicle, its customers, the depot, the
   customers of another route, the depot, and so on. To turn a stretch of it around is a
   move whether it begins and ends on one route or on two; whole routes in between are the
   same routes when they are turned. */

#define GAIN 1e-4 /* what is less is rounding */
#define ROUNDS 4  /* changes per customer after which a plan is good enough */

typedef struct {
    long open, wide;      /* customers; the vehicle, the depot: wide = open + 2 nodes */
    float *apart;         /* wide x wide */
    float *load;          /* of each node; the vehicle's is what it has loaded */
    int *near, *known;    /* the nearest customers of each customer, and how many */
    int *far;             /* customers, the farthest from the depot first */
    int *tour, *place;    /* all routes in a row, and where each node stands in it */
    int *line;            /* the number of the route at each place */
    int *todo;            /* customers to look at again */
    double *before, *sum; /* load up to each place, of each route */
    long length;          /* of the tour */
} Routes;

/* What becomes of the places `from` to `to`.

   TURN: they are turned around. TRADE: the tails of two routes, which begin there, change
   places. MOVE: what begins at `middle` comes before what begins at `from`, one of the two
   (`flip`) turned around. SWAP: the first and the last change places. */
typedef struct {
    double gain;
    enum { NOTHING, TURN, TRADE, MOVE, SWAP } kind;
    long from, middle, to;
    int flip;
} Change;

static inline double way(const Routes *r, int a, int b) { return r->apart[a * r->wide + b]; }

/* Finds where everything is. */
static void survey(Routes *r) {
    int line = 0;
    double load = 0;
    for (long i = 0; i < r->length; i++) {
        int node = r->tour[i];
        r->line[i] = line;
        if (node == r->open + 1) {
            r->before[i] = r->sum[line++] = load, load = 0;
            continue;
        }
        r->place[node] = (int)i;
        r->before[i] = load += r->load[node];
    }
}

static void turn(int *tour, long from, long to) {
    for (; from < to; from++, to--) {
        int node = tour[from];
        tour[from] = tour[to], tour[to] = node;
    }
}

static void look_again(Routes *r, long i) {
    if (i >= 0 && i < r->length && r->tour[i] < r->open) r->todo[r->tour[i]] = 1;
}

static long end_of_route(const Routes *r, long i) {
    while (r->tour[i] != r->open + 1) i++;
    return i;
}

static void change(Routes *r, const Change *c) {
    int *tour = r->tour;
    long from = c->from, middle = c->middle, to = c->to;
    long near[] = {from - 1, from, from + 1, middle - 1, middle, to - 1, to, to + 1};
    for (int i = 0; i < 8; i++) look_again(r, near[i]);
    if (c->kind == TURN) turn(tour, from, to);
    if (c->kind == SWAP) turn(tour, from, to), turn(tour, from + 1, to - 1);
    if (c->kind == MOVE) {
        if (c->flip != 1) turn(tour, from, middle - 1);
        if (c->flip != 2) turn(tour, middle, to);
        turn(tour, from, to);
    }
    if (c->kind == TRADE) {
        long stop = end_of_route(r, from), end = end_of_route(r, to);
        long first = stop - from, last = end - to;
        turn(tour, from, end - 1);
        turn(tour, from, from + last - 1);
        turn(tour, from + last, end - 1 - first);
        turn(tour, end - first, end - 1);
    }
    survey(r);
}

/* The load of a route up to a place, which may be just before it. */
static inline double up_to(const Routes *r, long place, int line) {
    return r->line[place] == line ? r->before[place] : 0;
}

static inline void keep(Change *best, Change other) {
    if (other.gain > best->gain) *best = other;
}

/* Both ways to cut beside a and beside b, at places i < j, and to turn what is between. */
static void turns(const Routes *r, long i, long j, Change *best) {
    const int *t = r->tour;
    int p = r->line[i], q = r->line[j];
    for (int s = 0; s < 2; s++) { /* (i, i+1) and (j, j+1), or (i-1, i) and (j-1, j) */
        long a = i - s, b = j - s;
        if (a < 0 || a + 1 >= b) continue;
        double gain = way(r, t[a], t[a + 1]) + way(r, t[b], t[b + 1]) - way(r, t[a], t[b]) -
                      way(r, t[a + 1], t[b + 1]);
        if (gain <= best->gain) continue;
        if (p != q) {
            double first = up_to(r, a, p), second = up_to(r, b, q);
            double rest = r->sum[p] - first + r->sum[q] - second;
            if (first + second > 1 + SLACK || rest > 1 + SLACK) continue;
        }
        keep(best, (Change){gain, TURN, a + 1, a + 1, b, 0});
    }
}

/* Trades tails of two routes, so that a and b meet. */
static void trades(const Routes *r, long i, long j, Change *best) {
    const int *t = r->tour;
    int p = r->line[i], q = r->line[j];
    if (p == q) return;
    for (int s = 0; s < 2; s++) { /* tails from i+1 and j, or from i and j+1 */
        long a = i + !s, b = j + s;
        if (a < 1) continue;
        double gain = way(r, t[a - 1], t[a]) + way(r, t[b - 1], t[b]) -
                      way(r, t[a - 1], t[b]) - way(r, t[b - 1], t[a]);
        if (gain <= best->gain) continue;
        double first = up_to(r, a - 1, p), second = up_to(r, b - 1, q);
        if (first + r->sum[q] - second > 1 + SLACK || second + r->sum[p] - first > 1 + SLACK)
            continue;
        keep(best, (Change){gain, TRADE, a, a, b, 0});
    }
}

/* Moves a, at i, beside b, at j, alone or with a neighbour of its own. */
static void moves(const Routes *r, long i, long j, Change *best) {
    const int *t = r->tour;
    int a = t[i];
    for (int extra = -1; extra <= 1; extra++) { /* with the one before, alone, with the next */
        long low = i + (extra < 0 ? -1 : 0), high = i + (extra > 0 ? 1 : 0);
        if ((j >= low && j <= high) || t[low] >= r->open || t[high] >= r->open) continue;
        int other = extra < 0 ? t[low] : t[high];
        double weight = r->load[a] + (extra ? r->load[other] : 0);
        if (r->line[i] != r->line[j] && r->sum[r->line[j]] + weight > 1 + SLACK) continue;
        double off = way(r, t[low - 1], t[low]) + way(r, t[high], t[high + 1]) -
                     way(r, t[low - 1], t[high + 1]);
        for (int after = 0; after < 2; after++) { /* between b and the next, or before b */
            long to = j + after; /* in front of this place */
            if (to < 1 || (to >= low && to <= high + 1)) continue;
            int left = t[to - 1], right = t[to];
            double on = way(r, t[j], a) + way(r, other, after ? right : left);
            double gain = off - (on - way(r, left, right));
            if (gain <= best->gain) continue;
            int flip = t[after ? low : high] != a;
            keep(best, to > high ? (Change){gain, MOVE, low, high + 1, to - 1, flip}
                                 : (Change){gain, MOVE, to, low, high, 2 * flip});
        }
    }
}

/* Swaps a, at i, with a neighbour of b, at j, so that a and b meet. */
static void swaps(const Routes *r, long i, long j, Change *best) {
    const int *t = r->tour;
    int a = t[i];
    for (long k = j - 1; k <= j + 1; k += 2) {
        if (k < 1 || (k - i < 2 && i - k < 2) || t[k] >= r->open) continue;
        int c = t[k];
        double gain = way(r, t[i - 1], a) + way(r, a, t[i + 1]) - way(r, t[i - 1], c) -
                      way(r, c, t[i + 1]) + way(r, t[k - 1], c) + way(r, c, t[k + 1]) -
                      way(r, t[k - 1], a) - way(r, a, t[k + 1]);
        if (gain <= best->gain) continue;
        int p = r->line[i], q = r->line[k];
        double more = (double)r->load[c] - r->load[a];
        if (p != q && (r->sum[p] + more > 1 + SLACK || r->sum[q] - more > 1 + SLACK)) continue;
        keep(best, i < k ? (Change){gain, SWAP, i, i, k, 0} : (Change){gain, SWAP, k, k, i, 0});
    }
}

/* The best change that puts a customer beside one of its nearest or the vehicle. */
static Change best_change(const Routes *r, int a) {
    Change best = {GAIN, NOTHING, 0, 0, 0, 0};
    long i = r->place[a];
    double before = way(r, r->tour[i - 1], a), after = way(r, a, r->tour[i + 1]);
    double most = before > after ? before : after;
    for (int c = -1; c < r->known[a]; c++) {
        int b = c < 0 ? (int)r->open : r->near[a * NEAREST + c];
        if (way(r, a, b) >= most) {
            if (c < 0) continue;
            break;
        }
        long j = r->place[b], low = i < j ? i : j, high = i < j ? j : i;
        turns(r, low, high, &best);
        trades(r, low, high, &best);
        moves(r, i, j, &best);
        swaps(r, i, j, &best);
    }
    return best;
}

/* Until no change of any customer makes the tour shorter. */
static void improve(Routes *r) {
    survey(r);
    for (long j = 0; j < r->open; j++) r->todo[j] = 1;
    for (long left = ROUNDS * r->open, busy = 1; busy && left;) {
        busy = 0;
        for (long f = 0; f < r->open && left; f++) {
            int a = r->far[f];
            while (r->todo[a] && left) {
                Change found = best_change(r, a);
                r->todo[a] = 0;
                if (found.kind == NOTHING) break;
                change(r, &found);
                r->todo[a] = 1;
                busy = 1, left--;
            }
        }
    }
}

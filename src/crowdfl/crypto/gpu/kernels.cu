// Arithmetic modulo N^2 for many numbers at once. TPI threads ("lanes") share a number, each holds L 32-bit limbs of it.
//
// A number x modulo N^2 is a pair (x0, x1) with x = x0 - x1*N, both parts NL = TPI*L limbs. With R = 2^(32*(NL+1)) and
// Montgomery's reduction x0*y0 = r*R - u*N, the product is
//     x*y/R = r - ((x0*y1 + x1*y0 + u)/R mod N) * N,
// so all is arithmetic modulo N: five half-length products where plain arithmetic modulo N^2 needs eight, four to square.
//
// R has one limb more than N. A result is then below N + 3*2^(32*(NL-1)), which fits NL limbs when N's top limb is below
// 0xFFFFFFFC (the host picks NL so): no comparison, no conditional subtraction, the same instructions whatever the numbers.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

#define NL (TPI * L)
#define PAIR (2 * NL)
#define GROUPS (BLOCK / TPI)
#define PADDED (PAIR + 4) // groups of a warp read different banks
#define KERNEL extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
#define INLINE __device__ __forceinline__

#ifndef EMULATED
// Carry chains: the flag lives from one of these to the next.
INLINE void add_cc(u32 &d, u32 a, u32 b) { asm volatile("add.cc.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); }
INLINE void addc_cc(u32 &d, u32 a, u32 b) { asm volatile("addc.cc.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); }
INLINE void addc(u32 &d, u32 a, u32 b) { asm volatile("addc.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); }
INLINE void mad_lo_cc(u32 &d, u32 a, u32 b, u32 c) {
    asm volatile("mad.lo.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
}
INLINE void madc_lo_cc(u32 &d, u32 a, u32 b, u32 c) {
    asm volatile("madc.lo.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
}
INLINE void madc_hi_cc(u32 &d, u32 a, u32 b, u32 c) {
    asm volatile("madc.hi.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
}
#define SHARED __shared__
#define WARP 32
#endif

#define EVERYONE 0xffffffffu

INLINE u32 from_lane(u32 value, int lane) { return __shfl_sync(EVERYONE, value, lane, TPI); }

INLINE u32 from_above(u32 value, int lane) {
    u32 other = __shfl_down_sync(EVERYONE, value, 1, TPI);
    return lane == TPI - 1 ? 0 : other;
}

INLINE u32 from_below(u32 value, int lane) {
    u32 other = __shfl_up_sync(EVERYONE, value, 1, TPI);
    return lane == 0 ? 0 : other;
}

// Where a factor's limbs come from: the lanes' registers, or memory that all lanes of the group can read.
struct FromLanes {
    const u32 *mine;
    INLINE u32 operator()(int lane, int j) const { return from_lane(mine[j], lane); }
};

struct FromMemory {
    const u32 *all;
    INLINE u32 operator()(int lane, int j) const { return all[lane * L + j]; }
};

// Every second limb of `a` times b, added to the pairs of `acc`; leaves the carry in the flag.
INLINE void row(u32 *acc, const u32 *a, u32 b) {
    mad_lo_cc(acc[0], a[0], b, acc[0]);
    madc_hi_cc(acc[1], a[0], b, acc[1]);
#pragma unroll
    for (int j = 2; j < L; j += 2) {
        madc_lo_cc(acc[j], a[j], b, acc[j]);
        madc_hi_cc(acc[j + 1], a[j], b, acc[j + 1]);
    }
}

// a*b added to the lane's sum: even limbs of `a` into ev (words 0..L-1), odd ones into od (words 1..L); top is word L+1.
INLINE void add_product(u32 *ev, u32 *od, u32 &top, const u32 *a, u32 b) {
    row(od, a + 1, b);
    addc(top, top, 0);
    row(ev, a, b);
    addc_cc(od[L - 1], od[L - 1], 0);
    addc(top, top, 0);
}

// One limb of Montgomery's reduction: shift the sum by a word, add a*b (and c*d), add q*N so that the lowest word vanishes.
// Comes with the roles of ev and od exchanged by the shift: od holds the words that were even.
template <bool DUAL>
INLINE u32 step(u32 *ev, u32 *od, u32 &top, const u32 *a, u32 b, const u32 *c, u32 d, const u32 *n, u32 n_inv, int lane) {
    u32 incoming = from_above(od[0], lane);
    add_cc(ev[0], ev[0], od[1]);
#pragma unroll
    for (int j = 0; j < L - 2; j += 2) {
        madc_lo_cc(od[j], a[j + 1], b, od[j + 2]);
        madc_hi_cc(od[j + 1], a[j + 1], b, od[j + 3]);
    }
    madc_lo_cc(od[L - 2], a[L - 1], b, incoming);
    madc_hi_cc(od[L - 1], a[L - 1], b, top);
    addc(top, 0, 0);
    row(ev, a, b);
    addc_cc(od[L - 1], od[L - 1], 0);
    addc(top, top, 0);
    if (DUAL) add_product(ev, od, top, c, d);
    u32 q = from_lane(ev[0] * n_inv, 0);
    add_product(ev, od, top, n, q);
    return q;
}

// Carries between lanes: `over` first, then the single bits that are left, through all lanes at once.
INLINE void settle(u32 *r, u32 over, int lane) {
    u32 carry = 0, ones;
    add_cc(r[0], r[0], from_below(over, lane));
#pragma unroll
    for (int j = 1; j < L; j++) addc_cc(r[j], r[j], 0);
    addc(carry, 0, 0);
    ones = r[0];
#pragma unroll
    for (int j = 1; j < L; j++) ones &= r[j];
    int shift = (threadIdx.x % WARP) / TPI * TPI;
    u32 mask = TPI == 32 ? 0xffffffffu : (1u << (TPI % 32)) - 1;
    u32 made = (__ballot_sync(EVERYONE, carry) >> shift) & mask;
    u32 passed = (__ballot_sync(EVERYONE, ones == 0xffffffffu) >> shift) & mask;
    u32 into = ((made << 1) + passed) ^ passed;
    add_cc(r[0], r[0], (into >> lane) & 1);
#pragma unroll
    for (int j = 1; j < L; j++) addc_cc(r[j], r[j], 0);
}

// (a*b + c*d + start) / R modulo N into r. `start` has NL+1 limbs, the last in start_top; on return it holds u.
// b_last is limb NL of b.
template <bool DUAL, bool KEEP, class B, class D>
INLINE void reduce(u32 *r, u32 *start, u32 &start_top, const u32 *a, B b, u32 b_last, const u32 *c, D d, const u32 *n,
                   u32 n_inv, int lane) {
    u32 x[L], y[L], top = lane == TPI - 1 ? start_top : 0;
#pragma unroll
    for (int j = 0; j < L; j++) x[j] = start[j], y[j] = 0;
#pragma unroll 1
    for (int k = 0; k < TPI; k++) {
#pragma unroll
        for (int j = 0; j < L; j += 2) {
            u32 q = step<DUAL>(x, y, top, a, b(k, j), c, DUAL ? d(k, j) : 0, n, n_inv, lane);
            if (KEEP) start[j] = lane == k ? q : start[j];
            q = step<DUAL>(y, x, top, a, b(k, j + 1), c, DUAL ? d(k, j + 1) : 0, n, n_inv, lane);
            if (KEEP) start[j + 1] = lane == k ? q : start[j + 1];
        }
    }
    start_top = step<false>(x, y, top, a, b_last, c, 0, n, n_inv, lane);
    u32 incoming = from_above(x[0], lane);
    add_cc(r[0], y[0], x[1]);
#pragma unroll
    for (int j = 1; j < L - 1; j++) addc_cc(r[j], y[j], x[j + 1]);
    addc_cc(r[L - 1], y[L - 1], incoming);
    addc(top, top, 0);
    settle(r, top, lane);
}

// A group's view of its modulus and its own limbs of a pair.
struct Group {
    int lane;
    u32 n[L], n_inv, x0[L], x1[L];

    INLINE void open(const u32 *modulus) {
        lane = threadIdx.x % TPI;
#pragma unroll
        for (int j = 0; j < L; j++) n[j] = modulus[lane * L + j];
        n_inv = modulus[NL];
    }

    INLINE void load(const u32 *pair) {
#pragma unroll
        for (int j = 0; j < L; j++) x0[j] = pair[lane * L + j], x1[j] = pair[NL + lane * L + j];
    }

    INLINE void store(u32 *pair) const {
#pragma unroll
        for (int j = 0; j < L; j++) pair[lane * L + j] = x0[j], pair[NL + lane * L + j] = x1[j];
    }

    // x = x*y/R, y a pair in memory that every lane can read. LOW: modulo N alone, of x0.
    template <bool LOW = false>
    INLINE void multiply(const u32 *y) {
        u32 r[L], u[L], u_top = 0;
#pragma unroll
        for (int j = 0; j < L; j++) u[j] = 0;
        if (LOW) {
            reduce<false, false>(x0, u, u_top, x0, FromMemory{y}, 0, x0, FromMemory{y}, n, n_inv, lane);
            return;
        }
        reduce<false, true>(r, u, u_top, x0, FromMemory{y}, 0, x0, FromMemory{y}, n, n_inv, lane);
        reduce<true, false>(x1, u, u_top, x0, FromMemory{y + NL}, 0, x1, FromMemory{y}, n, n_inv, lane);
#pragma unroll
        for (int j = 0; j < L; j++) x0[j] = r[j];
    }

    // x = x*x/R.
    template <bool LOW = false>
    INLINE void square() {
        u32 r[L], u[L], u_top = 0, twice[L];
        if (LOW) {
#pragma unroll
            for (int j = 0; j < L; j++) u[j] = 0;
            reduce<false, false>(x0, u, u_top, x0, FromLanes{x0}, 0, x0, FromLanes{x0}, n, n_inv, lane);
            return;
        }
        u32 below = from_below(x1[L - 1], lane);
        u32 last = from_lane(x1[L - 1] >> 31, TPI - 1);
#pragma unroll
        for (int j = 0; j < L; j++) {
            u[j] = 0;
            twice[j] = (x1[j] << 1) | ((j ? x1[j - 1] : below) >> 31);
        }
        reduce<false, true>(r, u, u_top, x0, FromLanes{x0}, 0, x0, FromLanes{x0}, n, n_inv, lane);
        reduce<false, false>(x1, u, u_top, x0, FromLanes{twice}, last, x0, FromLanes{twice}, n, n_inv, lane);
#pragma unroll
        for (int j = 0; j < L; j++) x0[j] = r[j];
    }
};

// Shared memory where a group lays a factor out for all its lanes.
struct Desk {
    u32 *place;

    INLINE const u32 *lay(const Group &group, const u32 *pair) const {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < L; j++) {
            place[group.lane * L + j] = pair[group.lane * L + j];
            place[NL + group.lane * L + j] = pair[NL + group.lane * L + j];
        }
        __syncwarp();
        return place;
    }
};

#define GROUP_INDEX ((u64)(blockIdx.x) * GROUPS + threadIdx.x / TPI)
// The groups beyond the last row repeat it and store nothing: lanes exchange data, so that none may leave early.
#define BEGIN(count)                                                                                                   \
    SHARED __align__(16) u32 stage[GROUPS][PADDED];                                                                                  \
    Desk desk{stage[threadIdx.x / TPI]};                                                                               \
    u64 row_index = GROUP_INDEX;                                                                                       \
    bool mine = row_index < (count);                                                                                   \
    if (!mine) row_index = (count) - 1;                                                                                \
    Group g;                                                                                                           \
    g.open(modulus)

// Big-endian rows of `width` bytes to numbers of `limbs` limbs, lowest first.
KERNEL limbs_of_rows(const u8 *rows, u32 *out, u64 count, u32 width, u32 limbs) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count * limbs) return;
    const u8 *bytes = rows + index / limbs * width;
    u32 limb = 0;
    for (u32 k = 0; k < 4; k++) {
        u32 place = (u32)(index % limbs) * 4 + k;
        if (place < width) limb |= (u32)bytes[width - 1 - place] << (8 * k);
    }
    out[index] = limb;
}

KERNEL rows_of_limbs(const u32 *numbers, u8 *out, u64 count, u32 width, u32 limbs) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count * width) return;
    u32 place = width - 1 - (u32)(index % width);
    out[index] = (u8)(numbers[index / width * limbs + place / 4] >> (8 * (place % 4)));
}

// The digits of big-endian exponents of `width` bytes, of which the lowest `bits` bits count.
KERNEL digits_of_rows(const u8 *rows, u16 *out, u64 count, u32 width, u32 bits, u32 window, u32 digit_count,
                      u32 highest_first) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count * digit_count) return;
    const u8 *bytes = rows + index / digit_count * width;
    u32 digit = (u32)(index % digit_count), value = 0;
    u32 place = (highest_first ? digit_count - 1 - digit : digit) * window;
    for (u32 k = 0; k < window && place + k < bits && place + k < 8 * width; k++)
        value |= (u32)(bytes[width - 1 - (place + k) / 8] >> ((place + k) % 8) & 1) << k;
    out[index] = (u16)value;
}

// Numbers of 2*NL limbs to pairs, times R: `powers` holds the pairs of R^2 and of R^2 * 2^(32*NL).
KERNEL enter(const u32 *numbers, u32 *out, u64 count, const u32 *powers, const u32 *modulus) {
    BEGIN(count);
    g.load(numbers + row_index * PAIR);
    u32 r[L], u[L], u_top = 0;
#pragma unroll
    for (int j = 0; j < L; j++) u[j] = 0;
    reduce<true, true>(r, u, u_top, g.x0, FromMemory{powers}, 0, g.x1, FromMemory{powers + PAIR}, g.n, g.n_inv, g.lane);
    reduce<true, false>(g.x1, u, u_top, g.x0, FromMemory{powers + NL}, 0, g.x1, FromMemory{powers + PAIR + NL}, g.n,
                        g.n_inv, g.lane);
#pragma unroll
    for (int j = 0; j < L; j++) g.x0[j] = r[j];
    if (mine) g.store(out + row_index * PAIR);
}

// a*b/R, row by row; steps count pairs, a step of 0 takes one pair for all.
KERNEL multiply(const u32 *a, u64 a_step, const u32 *b, u64 b_step, u32 *out, u64 out_step, u64 count,
                const u32 *modulus) {
    BEGIN(count);
    g.load(a + row_index * a_step * PAIR);
    g.multiply(desk.lay(g, b + row_index * b_step * PAIR));
    if (mine) g.store(out + row_index * out_step * PAIR);
}

// base^exponent by windows: digits highest first, one exponent for all (digit_step 0) or one a row. Every digit multiplies,
// zero too. `tables` has 2^window pairs a group. The group takes rows in turn, so that its table is used again.
// LOW: modulo N alone; what comes out is some number modulo N^2 that is the power modulo N.
template <bool LOW>
INLINE void powers(const u32 *bases, const u16 *digits, u64 digit_step, u32 digit_count, u32 window, u32 *tables, u32 *out,
                   u64 count, u64 groups, const u32 *one, const u32 *modulus, Desk desk) {
    Group g;
    g.open(modulus);
    u32 *table = tables + ((u64)PAIR << window) * GROUP_INDEX;
#pragma unroll 1
    for (u64 turn = 0; turn < (count + groups - 1) / groups; turn++) {
        u64 row_index = turn * groups + GROUP_INDEX;
        bool mine = row_index < count && GROUP_INDEX < groups;
        if (!mine) row_index = count - 1;
        const u32 *base = bases + row_index * PAIR;
        g.load(one);
        g.store(table);
        g.load(base);
        g.store(table + PAIR);
        desk.lay(g, base);
#pragma unroll 1
        for (u32 entry = 2; entry < 1u << window; entry++) {
            g.multiply<LOW>(desk.place);
            g.store(table + entry * PAIR);
        }
        const u16 *own = digits + row_index * digit_step;
        __syncwarp();
        g.load(table + own[0] * PAIR);
#pragma unroll 1
        for (u32 i = 1; i < digit_count; i++) {
#pragma unroll 1
            for (u32 k = 0; k < window; k++) g.square<LOW>();
            g.multiply<LOW>(desk.lay(g, table + own[i] * PAIR));
        }
#pragma unroll
        for (int j = 0; LOW && j < L; j++) g.x1[j] = 0;
        if (mine) g.store(out + row_index * PAIR);
    }
}

#define POWERS(name, low)                                                                                              \
    KERNEL name(const u32 *bases, const u16 *digits, u64 digit_step, u32 digit_count, u32 window, u32 *tables, u32 *out, \
                u64 count, u64 groups, const u32 *one, const u32 *modulus) {                                           \
        SHARED __align__(16) u32 stage[GROUPS][PADDED];                                                                \
        powers<low>(bases, digits, digit_step, digit_count, window, tables, out, count, groups, one, modulus,          \
                    Desk{stage[threadIdx.x / TPI]});                                                                   \
    }
POWERS(power, false)
POWERS(power_low, true)

// The product of table[i][digit i] over all digits: a fixed base to many exponents.
KERNEL look_up(const u32 *table, const u16 *digits, u32 digit_count, u32 window, u32 *out, u64 count,
               const u32 *modulus) {
    BEGIN(count);
    const u16 *own = digits + row_index * digit_count;
    g.load(table + (u64)own[0] * PAIR);
#pragma unroll 1
    for (u32 i = 1; i < digit_count; i++) g.multiply(desk.lay(g, table + (((u64)i << window) + own[i]) * PAIR));
    if (mine) g.store(out + row_index * PAIR);
}

// base^(2^k) for k = 0 .. length-1, by one group.
KERNEL squarings(const u32 *base, u32 *out, u64 length, const u32 *modulus) {
    u64 count = 1;
    BEGIN(count);
    (void)desk;
    g.load(base);
#pragma unroll 1
    for (u64 k = 0; k < length; k++) {
        if (mine) g.store(out + k * PAIR);
        g.square();
    }
}

// Fill entries [2^bit, 2^(bit+1)) of every table row: entry - 2^bit times base^(2^(window*row + bit)).
KERNEL grow_table(u32 *table, const u32 *powers, u32 window, u32 bit, u64 count, const u32 *modulus) {
    BEGIN(count);
    u64 digit = row_index >> bit, entry = row_index & ((1u << bit) - 1);
    u32 *row_start = table + (digit << window) * PAIR;
    g.load(row_start + entry * PAIR);
    g.multiply(desk.lay(g, powers + (digit * window + bit) * PAIR));
    if (mine) g.store(row_start + (entry + (1u << bit)) * PAIR);
}

// Rows of `size` pairs in pieces of `piece`: where the piece of this group begins and how many it has.
struct Piece {
    u64 first, length;
    INLINE Piece(u64 index, u64 size, u64 piece) {
        u64 pieces = (size + piece - 1) / piece, start = index % pieces * piece;
        first = index / pieces * size + start;
        length = start + piece <= size ? piece : size - start;
    }
};

// The product of the pairs of each piece; with marks, of those alone whose mark is `wanted`.
KERNEL piece_product(const u32 *pairs, const u8 *marks, u32 wanted, u64 size, u64 piece, u32 *out, u64 count,
                     const u32 *one, const u32 *modulus) {
    BEGIN(count);
    Piece own(row_index, size, piece);
    g.load(one);
#pragma unroll 1
    for (u64 k = 0; k < piece; k++) {
        bool take = k < own.length && (!marks || marks[own.first + k] == wanted);
        g.multiply(desk.lay(g, take ? pairs + (own.first + k) * PAIR : one));
    }
    if (mine) g.store(out + row_index * PAIR);
}

// Products of powers (Straus) of each piece, an exponent for each base, digits highest first. Squarings are shared by the
// piece, the tables of 2^window pairs a base are not. As `power`, the group takes pieces in turn and uses its tables again.
KERNEL power_product(const u32 *bases, const u16 *digits, u32 digit_count, u32 window, u64 size, u64 piece, u32 *tables,
                     u32 *out, u64 count, u64 groups, const u32 *one, const u32 *modulus) {
    SHARED __align__(16) u32 stage[GROUPS][PADDED];
    Desk desk{stage[threadIdx.x / TPI]};
    Group g;
    g.open(modulus);
    u64 table_size = (u64)PAIR << window;
    u32 *table = tables + table_size * piece * GROUP_INDEX;
#pragma unroll 1
    for (u64 turn = 0; turn < (count + groups - 1) / groups; turn++) {
        u64 row_index = turn * groups + GROUP_INDEX;
        bool mine = row_index < count && GROUP_INDEX < groups;
        if (!mine) row_index = count - 1;
        Piece own(row_index, size, piece);
#pragma unroll 1
        for (u64 b = 0; b < piece; b++) {
            const u32 *base = b < own.length ? bases + (own.first + b) * PAIR : one;
            u32 *entries = table + table_size * b;
            g.load(one);
            g.store(entries);
            g.load(base);
            g.store(entries + PAIR);
            desk.lay(g, base);
#pragma unroll 1
            for (u32 entry = 2; entry < 1u << window; entry++) {
                g.multiply(desk.place);
                g.store(entries + entry * PAIR);
            }
        }
        __syncwarp();
        g.load(one);
#pragma unroll 1
        for (u32 i = 0; i < digit_count; i++) {
#pragma unroll 1
            for (u32 k = 0; i && k < window; k++) g.square();
#pragma unroll 1
            for (u64 b = 0; b < piece; b++) {
                u32 digit = b < own.length ? digits[(own.first + b) * digit_count + i] : 0;
                g.multiply(desk.lay(g, table + table_size * b + digit * PAIR));
            }
        }
        if (mine) g.store(out + row_index * PAIR);
    }
}

// ---- One thread a row from here on: the ends of a batch.

INLINE bool subtract_if_not_less(u32 *x, const u32 *n, u32 limbs, u32 x_top) {
    if (!x_top) {
        int j = (int)limbs - 1;
        while (j >= 0 && x[j] == n[j]) j--;
        if (j >= 0 && x[j] < n[j]) return false;
    }
    u64 borrow = 0;
    for (u32 j = 0; j < limbs; j++) {
        u64 difference = (u64)x[j] - n[j] - borrow;
        x[j] = (u32)difference;
        borrow = difference >> 63;
    }
    return true;
}

// A pair with parts below 2N, made canonical: x0 in [0, N) and z = -x1 mod N in x1's place, so that x = x0 + z*N.
INLINE void canonical(u32 *pair, const u32 *n) {
    u32 *x0 = pair, *x1 = pair + NL;
    u64 carry = subtract_if_not_less(x0, n, NL, 0) ? 1 : 0;
    subtract_if_not_less(x1, n, NL, 0);
    // z = N + carry - x1, in [1, N + 1]
    long long sum = (long long)carry;
    for (u32 j = 0; j < NL; j++) {
        sum += (long long)n[j] - x1[j];
        x1[j] = (u32)sum;
        sum >>= 32;
    }
    subtract_if_not_less(x1, n, NL, (u32)sum);
}

// Pairs (not times R, parts below 2N) to numbers below N^2, of 2*NL limbs.
KERNEL leave(u32 *pairs, u32 *out, u64 count, const u32 *modulus) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count) return;
    u32 *pair = pairs + index * PAIR, *number = out + index * PAIR;
    canonical(pair, modulus);
    for (u32 j = 0; j < NL; j++) number[j] = pair[j], number[NL + j] = 0;
    for (u32 i = 0; i < NL; i++) {
        u64 carry = 0, z = pair[NL + i];
        for (u32 j = 0; j < NL; j++) {
            carry += z * modulus[j] + number[i + j];
            number[i + j] = (u32)carry;
            carry >>= 32;
        }
        for (u32 j = i + NL; carry && j < PAIR; j++) {
            carry += number[j];
            number[j] = (u32)carry;
            carry >>= 32;
        }
    }
}

// L(x) = (x - 1)/N of pairs (as for `leave`): numbers of NL limbs, and 1 for each row where x is not 1 modulo N.
KERNEL quotients(u32 *pairs, u32 *out, u8 *wrong, u64 count, const u32 *modulus) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count) return;
    u32 *pair = pairs + index * PAIR, rest = pair[0];
    canonical(pair, modulus);
    rest = pair[0] ^ 1;
    for (u32 j = 1; j < NL; j++) rest |= pair[j];
    for (u32 j = 0; j < NL; j++) out[index * NL + j] = pair[NL + j];
    wrong[index] = rest != 0;
}

// The pair of 1 + m*N for numbers m of NL limbs.
KERNEL plain_pairs(const u32 *numbers, u32 *out, u64 count, const u32 *modulus) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count) return;
    const u32 *m = numbers + index * NL;
    u32 *pair = out + index * PAIR;
    long long sum = 0;
    for (u32 j = 0; j < NL; j++) {
        pair[j] = j == 0;
        sum += (long long)modulus[j] - m[j];
        pair[NL + j] = (u32)sum;
        sum >>= 32;
    }
    while (sum < 0) { // m was not below N
        long long carry = 0;
        for (u32 j = 0; j < NL; j++) {
            carry += (long long)pair[NL + j] + modulus[j];
            pair[NL + j] = (u32)carry;
            carry >>= 32;
        }
        sum += carry;
    }
}

// 1 for each number of 2*NL limbs that is zero or not below N^2.
KERNEL out_of_range(const u32 *numbers, u8 *out, u64 count, const u32 *square) {
    u64 index = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (index >= count) return;
    const u32 *x = numbers + index * PAIR;
    int j = PAIR - 1;
    while (j >= 0 && x[j] == square[j]) j--;
    bool outside = j < 0 || x[j] > square[j];
    int k = PAIR - 1;
    while (k >= 0 && x[k] == 0) k--;
    out[index] = outside || k < 0;
}

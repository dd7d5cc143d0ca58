// Runs the CUDA source on the CPU, one group of lanes at a time: each lane is a fiber, and lanes wait for each other wherever
// the lanes of a warp would exchange data. Compiled in front of kernels.cu with BLOCK = TPI.
#include <cstdlib>
#include <ucontext.h>

#define EMULATED
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)
#define SHARED static
#define WARP TPI
#define __align__(bytes)

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx;

namespace emulation {
const int STACK = 256 * 1024;
static ucontext_t lanes[TPI], scheduler;
static bool done[TPI];
static unsigned slots[2][TPI], turn[TPI], carry;
static char *stacks;

static void wait_for_all() {
    unsigned lane = threadIdx.x;
    swapcontext(&lanes[lane], &scheduler);
    threadIdx.x = lane;
}

// Slots alternate: a lane may be one exchange ahead of another, never two.
static const unsigned *exchange(unsigned value) {
    unsigned *row = slots[turn[threadIdx.x]++ & 1];
    row[threadIdx.x] = value;
    wait_for_all();
    return row;
}

typedef unsigned long long word;
typedef void (*kernel)(word, word, word, word, word, word, word, word, word, word, word, word);
static kernel running;
static const word *arguments;

static void lane_main() {
    const word *a = arguments;
    running(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    done[threadIdx.x] = true;
    swapcontext(&lanes[threadIdx.x], &scheduler);
}

extern "C" void run_emulated(kernel function, unsigned blocks, const word *args) {
    if (!stacks) stacks = (char *)malloc((size_t)STACK * TPI);
    running = function;
    arguments = args;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (int lane = 0; lane < TPI; lane++) {
            getcontext(&lanes[lane]);
            lanes[lane].uc_stack.ss_sp = stacks + (size_t)STACK * lane;
            lanes[lane].uc_stack.ss_size = STACK;
            lanes[lane].uc_link = &scheduler;
            makecontext(&lanes[lane], lane_main, 0);
            done[lane] = false;
            turn[lane] = 0;
        }
        for (bool any = true; any;) {
            any = false;
            for (int lane = 0; lane < TPI; lane++) {
                if (done[lane]) continue;
                any = true;
                threadIdx.x = lane;
                swapcontext(&scheduler, &lanes[lane]);
            }
        }
    }
}
} // namespace emulation

static inline unsigned __shfl_sync(unsigned, unsigned value, int lane, int) { return emulation::exchange(value)[lane]; }
static inline unsigned __shfl_down_sync(unsigned, unsigned value, int by, int) {
    unsigned lane = threadIdx.x, *row = (unsigned *)emulation::exchange(value);
    return row[lane + by < TPI ? lane + by : lane];
}
static inline unsigned __shfl_up_sync(unsigned, unsigned value, int by, int) {
    unsigned lane = threadIdx.x, *row = (unsigned *)emulation::exchange(value);
    return row[lane >= (unsigned)by ? lane - by : lane];
}
static inline unsigned __ballot_sync(unsigned, unsigned predicate) {
    const unsigned *row = emulation::exchange(predicate != 0);
    unsigned bits = 0;
    for (int lane = 0; lane < TPI; lane++) bits |= row[lane] << lane;
    return bits;
}
static inline void __syncwarp() { emulation::exchange(0); }

static inline void emit(unsigned &d, unsigned long long sum) {
    d = (unsigned)sum;
    emulation::carry = (unsigned)(sum >> 32);
}
static inline void add_cc(unsigned &d, unsigned a, unsigned b) { emit(d, (unsigned long long)a + b); }
static inline void addc_cc(unsigned &d, unsigned a, unsigned b) {
    emit(d, (unsigned long long)a + b + emulation::carry);
}
static inline void addc(unsigned &d, unsigned a, unsigned b) { d = a + b + emulation::carry; }
static inline void mad_lo_cc(unsigned &d, unsigned a, unsigned b, unsigned c) {
    emit(d, (unsigned long long)(a * b) + c);
}
static inline void madc_lo_cc(unsigned &d, unsigned a, unsigned b, unsigned c) {
    emit(d, (unsigned long long)(a * b) + c + emulation::carry);
}
static inline void madc_hi_cc(unsigned &d, unsigned a, unsigned b, unsigned c) {
    emit(d, (((unsigned long long)a * b) >> 32) + c + emulation::carry);
}

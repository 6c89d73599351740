// A machine with a slow disk or a wrong clock, for a process that loads this library first.
// SLOW_DISK: the milliseconds that each fsync takes besides. CLOCK: the seconds that the wall clock
// is wrong by. BACKWARDS: the wall clock goes back as fast as time passes. Time since the start of
// the machine, which monotonic clocks show, is right.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    usleep(1000 * number("SLOW_DISK"));
    return real(file);
}

static void set_back(struct timespec *now) {
    static struct timespec began;
    if (!began.tv_sec) began = *now;
    if (getenv("BACKWARDS")) {
        long long passed = (now->tv_sec - began.tv_sec) * 1000000000LL + now->tv_nsec - began.tv_nsec;
        long long shown = began.tv_sec * 1000000000LL + began.tv_nsec - passed;
        now->tv_sec = shown / 1000000000LL;
        now->tv_nsec = shown % 1000000000LL;
    }
    now->tv_sec += number("CLOCK");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) set_back(now);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

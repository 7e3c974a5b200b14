/* Shifts the time of day of the process that it is loaded into. The monotonic clock, by which processes wait, stays as it is. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew_seconds;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("CLOCK_SKEW_SECONDS");
    skew_seconds = text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        at->tv_sec += skew_seconds;
    }
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) {
        return -1;
    }
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) {
        return (time_t)-1;
    }
    if (at) {
        *at = now.tv_sec;
    }
    return now.tv_sec;
}

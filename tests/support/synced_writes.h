/* Writes that are synced, as a write and a sync: for libraries that take the place of both calls, and record them or make
   them fail. Included behind these. The broker writes one part. */
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

#define PWRITEV2(function) \
ssize_t function(int fd, const struct iovec *parts, int count, off_t offset, int flags) { \
    if (count != 1) { errno = EOPNOTSUPP; return -1; } \
    ssize_t done = pwrite(fd, parts[0].iov_base, parts[0].iov_len, offset); \
    return done < 0 || !(flags & RWF_DSYNC) || fdatasync(fd) == 0 ? done : -1; \
}
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

/* Asynchronous writes. The broker begins one at a time. It is made with the calls above: by a thread if its end is
   announced, so that the broker goes on, and at once if the broker waits for it. */
static struct {
    struct iocb request;
    pthread_t thread;
    int64_t result;
} begun;

static void *write_begun(void *unused) {
    struct iocb *request = &begun.request;
    struct iovec part = {(void *)(uintptr_t)request->aio_buf, request->aio_nbytes};
    ssize_t done = pwritev2((int)request->aio_fildes, &part, 1, request->aio_offset, (int)request->aio_rw_flags);
    begun.result = done < 0 ? -errno : done;
    uint64_t one = 1;
    if (request->aio_flags & IOCB_FLAG_RESFD && write((int)request->aio_resfd, &one, sizeof one) < 0) abort();
    return unused;
}

long syscall(long number, ...) {
    REAL(long, "syscall", long, ...);
    long values[6];
    va_list rest;
    va_start(rest, number);
    for (int place = 0; place < 6; place++) values[place] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_io_submit) {
        begun.request = **(struct iocb **)values[2];
        if (!(begun.request.aio_flags & IOCB_FLAG_RESFD)) write_begun(NULL);
        else if (pthread_create(&begun.thread, NULL, write_begun, NULL)) abort();
        return 1;
    }
    if (number == SYS_io_getevents) {
        if (begun.request.aio_flags & IOCB_FLAG_RESFD) pthread_join(begun.thread, NULL);
        *(struct io_event *)values[3] = (struct io_event){.res = begun.result};
        return 1;
    }
    return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

/* Writes that are synced, as a write and a sync: for libraries that take the place of both calls, and record them or make
   them fail. Included behind these. The broker writes one part. */
#include <linux/aio_abi.h>
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

/* Asynchronous writes. The broker begins one at a time, and soon waits for its end. It is made at once, with the calls
   above. */
static int64_t written;

long syscall(long number, ...) {
    REAL(long, "syscall", long, ...);
    long values[6];
    va_list rest;
    va_start(rest, number);
    for (int place = 0; place < 6; place++) values[place] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_io_submit) {
        struct iocb *request = *(struct iocb **)values[2];
        void *data = (void *)(uintptr_t)request->aio_buf;
        written = pwrite((int)request->aio_fildes, data, request->aio_nbytes, request->aio_offset);
        if (written < 0) written = -errno;
        return 1;
    }
    if (number == SYS_io_getevents) {
        *(struct io_event *)values[3] = (struct io_event){.res = written};
        return 1;
    }
    return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

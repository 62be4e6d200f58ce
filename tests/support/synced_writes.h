/* Writes that are synced, as a write and a sync: for libraries that take the place of both calls, and record them or make
   them fail. Included behind these. The broker writes one part. */
#define PWRITEV2(function) \
ssize_t function(int fd, const struct iovec *parts, int count, off_t offset, int flags) { \
    if (count != 1) { errno = EOPNOTSUPP; return -1; } \
    ssize_t done = pwrite(fd, parts[0].iov_base, parts[0].iov_len, offset); \
    return done < 0 || !(flags & RWF_DSYNC) || fdatasync(fd) == 0 ? done : -1; \
}
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

/* Writes bytes to a file and syncs them, while the event loop does something else.

   A thread writes, which never takes the interpreter lock: a thread of Python would wait for that lock before and after the
   write. When the write has ended, a descriptor becomes readable, which the event loop watches. If the event loop waits for
   the end, and the file bypasses the page cache, the kernel itself writes in the background (asynchronous I/O): that needs
   no other thread. The kernel may block the caller, for example while a file system is frozen, so it gets no other write.
   One write runs at a time. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum state { IDLE, REQUESTED, DONE, CLOSING };

typedef struct {
    PyObject_HEAD
    /* What is being written. */
    Py_buffer data;
    int file;
    off_t position;
    int done;
    /* The kernel. */
    aio_context_t context;
    char uses_kernel;   /* it can write in the background, as far as is known */
    char kernel_writes; /* it writes what has begun, and `end` syncs that */
    /* The thread. */
    pthread_t thread;
    int has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum state state;
    int error;
} SyncedWriter;

/* Whether an error says that a system or a file system cannot write and sync with one call. */
static int is_unsupported(int error) { return error == EOPNOTSUPP || error == EINVAL || error == ENOSYS; }

/* Waits until the disk has what was written. Returns 0, or the error number. */
static int sync_data(int file) {
    while (fdatasync(file) < 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

/* Returns 0, or the error number. */
static int write_synced(int file, const char *data, size_t size, off_t position) {
    size_t written = 0;
#ifdef RWF_DSYNC
    struct iovec whole = {(void *)data, size};
    ssize_t at_once = pwritev2(file, &whole, 1, position, RWF_DSYNC);
    if (at_once == (ssize_t)size)
        return 0;
    if (at_once < 0 && errno != EINTR && !is_unsupported(errno))
        return errno;
#endif
    while (written < size) {
        ssize_t more = pwrite(file, data + written, size - written, position + (off_t)written);
        if (more < 0 && errno != EINTR)
            return errno;
        if (more > 0)
            written += (size_t)more;
    }
    return sync_data(file);
}

static void *run(void *argument) {
    SyncedWriter *self = argument;
    pthread_mutex_lock(&self->mutex);
    while (self->state != CLOSING) {
        if (self->state != REQUESTED) {
            pthread_cond_wait(&self->changed, &self->mutex);
            continue;
        }
        pthread_mutex_unlock(&self->mutex);
        int error = write_synced(self->file, self->data.buf, (size_t)self->data.len, self->position);
        pthread_mutex_lock(&self->mutex);
        self->error = error;
        self->state = DONE;
        pthread_cond_broadcast(&self->changed);
        uint64_t one = 1;
        (void)!write(self->done, &one, sizeof one);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

/* Passes what is to be written to the thread. Returns 0, or the error number. */
static int begin_in_thread(SyncedWriter *self) {
    if (!self->has_thread) {
        int error = pthread_create(&self->thread, NULL, run, self);
        if (error)
            return error;
        self->has_thread = 1;
    }
    pthread_mutex_lock(&self->mutex);
    self->state = REQUESTED;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return 0;
}

/* Waits for the thread. Returns 0, or the error number. */
static int end_in_thread(SyncedWriter *self) {
    pthread_mutex_lock(&self->mutex);
    while (self->state == REQUESTED)
        pthread_cond_wait(&self->changed, &self->mutex);
    self->state = IDLE;
    pthread_mutex_unlock(&self->mutex);
    return self->error;
}

/* Asks the kernel to write. Returns 0 if it does not, and does not ask it again if it never will. It could sync as well,
   but wakes a thread of its own for that. */
static int begin_in_kernel(SyncedWriter *self) {
    struct iocb request = {
        .aio_lio_opcode = IOCB_CMD_PWRITE,
        .aio_fildes = (uint32_t)self->file,
        .aio_buf = (uint64_t)(uintptr_t)self->data.buf,
        .aio_nbytes = (uint64_t)self->data.len,
        .aio_offset = self->position,
    };
    struct iocb *requests[] = {&request};
    if (self->context == 0 && syscall(SYS_io_setup, 1, &self->context) < 0)
        self->uses_kernel = 0;
    else if (syscall(SYS_io_submit, self->context, 1, requests) == 1)
        return 1;
    else if (is_unsupported(errno) || errno == EPERM)
        self->uses_kernel = 0;
    return 0;
}

/* Waits for the kernel. Returns 0, or the error number. */
static int end_in_kernel(SyncedWriter *self) {
    struct io_event event;
    long count;
    do
        count = syscall(SYS_io_getevents, self->context, 1, 1, &event, NULL);
    while (count < 0 && errno == EINTR);
    if (count == 1 && event.res == self->data.len)
        return sync_data(self->file);
    if (count == 1 && event.res < 0 && event.res != -EINTR && !is_unsupported((int)-event.res))
        return (int)-event.res;
    return write_synced(self->file, self->data.buf, (size_t)self->data.len, self->position);
}

/* begin(file, data, position, is_direct, caller_waits): begins to write at a position of an open file. `is_direct` says that
   the file bypasses the page cache, and that data and position are aligned, and `caller_waits` that `end` is called without
   a look at the descriptor. The data must not change until the end. Raises RuntimeError if another write has begun, or the
   writer is closed. */
static PyObject *begin(SyncedWriter *self, PyObject *arguments) {
    int file, is_direct, caller_waits;
    Py_buffer data;
    long long position;
    if (!PyArg_ParseTuple(arguments, "iy*Lpp:begin", &file, &data, &position, &is_direct, &caller_waits))
        return NULL;
    if (self->data.obj != NULL || self->state == CLOSING) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_RuntimeError, "a write has begun and not ended, or the writer is closed");
        return NULL;
    }
    self->data = data;
    self->file = file;
    self->position = (off_t)position;
    self->kernel_writes = caller_waits && is_direct && self->uses_kernel && begin_in_kernel(self);
    if (self->kernel_writes)
        Py_RETURN_NONE;
    int error = begin_in_thread(self);
    if (error) {
        PyBuffer_Release(&self->data);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* Waits for the end of the write. Returns 0, or the error number. */
static int wait_for_end(SyncedWriter *self) {
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = self->kernel_writes ? end_in_kernel(self) : end_in_thread(self);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&self->data);
    self->kernel_writes = 0;
    return error;
}

/* end() -> error number, or 0 if the bytes are durable: waits for the end of the write. Raises RuntimeError if none has
   begun. */
static PyObject *end(SyncedWriter *self, PyObject *unused) {
    if (self->data.obj == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "no write has begun");
        return NULL;
    }
    int is_announced = !self->kernel_writes;
    int error = wait_for_end(self);
    uint64_t count;
    if (is_announced)
        (void)!read(self->done, &count, sizeof count);
    return PyLong_FromLong(error);
}

/* close(): waits for what is being written, and ends the thread. Nothing can begin afterwards. */
static PyObject *close_writer(SyncedWriter *self, PyObject *unused) {
    if (self->data.obj != NULL)
        wait_for_end(self);
    if (self->context != 0)
        syscall(SYS_io_destroy, self->context);
    self->context = 0;
    pthread_mutex_lock(&self->mutex);
    self->state = CLOSING;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    if (self->has_thread) {
        Py_BEGIN_ALLOW_THREADS
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
        self->has_thread = 0;
    }
    Py_RETURN_NONE;
}

/* SyncedWriter(done): `done` is a non-blocking eventfd, readable from the end of a write until `end` is called. It must
   stay open as long as the writer. */
static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    int done;
    if (!PyArg_ParseTuple(arguments, "i:SyncedWriter", &done))
        return NULL;
    SyncedWriter *self = (SyncedWriter *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->done = done;
    self->uses_kernel = 1;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    return (PyObject *)self;
}

static void deallocate(SyncedWriter *self) {
    Py_XDECREF(close_writer(self, NULL));
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)begin, METH_VARARGS, NULL},
    {"end", (PyCFunction)end, METH_NOARGS, NULL},
    {"close", (PyCFunction)close_writer, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"uses_kernel", T_BOOL, offsetof(SyncedWriter, uses_kernel), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject SyncedWriterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "SyncedWriter",
    .tp_basicsize = sizeof(SyncedWriter),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new,
    .tp_dealloc = (destructor)deallocate,
    .tp_methods = methods,
    .tp_members = members,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", "See storage/native/__init__.py.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_compiled(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddType(module, &SyncedWriterType) < 0)
        Py_CLEAR(module);
    return module;
}

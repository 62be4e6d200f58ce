/* Writes bytes to a file and syncs them in a thread of its own, which never takes the interpreter lock.

   A thread of Python would wait for that lock before and after the write, while the event loop works. One write runs at a
   time. When it has ended, a descriptor becomes readable, which the event loop watches. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

enum state { IDLE, REQUESTED, DONE, CLOSING };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    int has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum state state;
    int done;
    int file;
    PyObject *data;
    off_t position;
    int error;
} SyncedWriter;

/* Returns 0, or the error number. */
static int write_synced(int file, const char *data, size_t size, off_t position) {
    size_t written = 0;
#ifdef RWF_DSYNC
    struct iovec whole = {(void *)data, size};
    ssize_t at_once = pwritev2(file, &whole, 1, position, RWF_DSYNC);
    if (at_once == (ssize_t)size)
        return 0;
    /* Some file systems cannot write and sync with one call. */
    if (at_once < 0 && errno != EINTR && errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS)
        return errno;
#endif
    while (written < size) {
        ssize_t more = pwrite(file, data + written, size - written, position + (off_t)written);
        if (more < 0 && errno != EINTR)
            return errno;
        if (more > 0)
            written += (size_t)more;
    }
    while (fdatasync(file) < 0)
        if (errno != EINTR)
            return errno;
    return 0;
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
        int error = write_synced(self->file, PyBytes_AS_STRING(self->data), (size_t)PyBytes_GET_SIZE(self->data),
                                 self->position);
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

/* begin(file, data, position): begins to write at a position of an open file. Raises RuntimeError if another write has
   begun, or the writer is closed. */
static PyObject *begin(SyncedWriter *self, PyObject *arguments) {
    int file;
    PyObject *data;
    long long position;
    if (!PyArg_ParseTuple(arguments, "iSL:begin", &file, &data, &position))
        return NULL;
    if (!self->has_thread && self->state != CLOSING) {
        int error = pthread_create(&self->thread, NULL, run, self);
        if (error) {
            errno = error;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        self->has_thread = 1;
    }
    pthread_mutex_lock(&self->mutex);
    int is_idle = self->state == IDLE;
    if (is_idle) {
        self->file = file;
        Py_INCREF(data);
        self->data = data;
        self->position = (off_t)position;
        self->state = REQUESTED;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    if (!is_idle) {
        PyErr_SetString(PyExc_RuntimeError, "a write has begun and not ended, or the writer is closed");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* end() -> error number, or 0 if the bytes are durable: waits for the end of the write. Raises RuntimeError if none has
   begun. */
static PyObject *end(SyncedWriter *self, PyObject *unused) {
    enum state found;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->mutex);
    while (self->state == REQUESTED)
        pthread_cond_wait(&self->changed, &self->mutex);
    found = self->state;
    if (found == DONE)
        self->state = IDLE;
    pthread_mutex_unlock(&self->mutex);
    Py_END_ALLOW_THREADS
    if (found != DONE) {
        PyErr_SetString(PyExc_RuntimeError, "no write has begun");
        return NULL;
    }
    uint64_t count;
    (void)!read(self->done, &count, sizeof count);
    Py_CLEAR(self->data);
    return PyLong_FromLong(self->error);
}

/* close(): ends the thread, after what it is writing. Nothing can begin afterwards. */
static PyObject *close_writer(SyncedWriter *self, PyObject *unused) {
    if (self->has_thread) {
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&self->mutex);
        while (self->state == REQUESTED)
            pthread_cond_wait(&self->changed, &self->mutex);
        self->state = CLOSING;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->mutex);
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
        self->has_thread = 0;
    }
    self->state = CLOSING;
    Py_CLEAR(self->data);
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

static PyTypeObject SyncedWriterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "SyncedWriter",
    .tp_basicsize = sizeof(SyncedWriter),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new,
    .tp_dealloc = (destructor)deallocate,
    .tp_methods = methods,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", "See storage/native/__init__.py.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_compiled(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddType(module, &SyncedWriterType) < 0)
        Py_CLEAR(module);
    return module;
}

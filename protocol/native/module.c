/* The compiled module: puts the functions of the other files together. */
#include "native.h"

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", "See protocol/native/__init__.py.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_compiled(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL &&
        (PyModule_AddFunctions(module, message_methods) < 0 || PyModule_AddFunctions(module, frame_methods) < 0 ||
         PyModule_AddFunctions(module, proton_methods) < 0 || PyModule_AddFunctions(module, socket_methods) < 0))
        Py_CLEAR(module);
    return module;
}

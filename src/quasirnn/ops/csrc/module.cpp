// The Python module: importing it loads the library, which registers the operators. It also tells which code runs.
#include <Python.h>

#include "rows.h"

namespace {

PyObject* instruction_set(PyObject*, PyObject*) { return PyUnicode_FromString(quasirnn::instruction_set()); }

PyMethodDef methods[] = {
    {"instruction_set", instruction_set, METH_NOARGS, "Name of the instruction set chosen for this CPU."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", "CPU kernels of quasirnn.", -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }

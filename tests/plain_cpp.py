"""C++ extensions without PyTorch's headers, whose compilation takes 30 CPU seconds: Python's own interface."""

_TENSORS = """\
#include <Python.h>
static float* values(PyObject* tensor) {
    PyObject* address = PyObject_CallMethod(tensor, "data_ptr", nullptr);
    void* pointer = PyLong_AsVoidPtr(address);
    Py_XDECREF(address);
    return static_cast<float*>(pointer);
}
static long size(PyObject* tensor, int dimension) {
    PyObject* number = PyObject_CallMethod(tensor, "size", "i", dimension);
    long size = PyLong_AsLong(number);
    Py_XDECREF(number);
    return size;
}
"""
_MODULE = """\
static PyMethodDef methods[] = {{"FUNCTION", FUNCTION, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "extension", nullptr, -1, methods};
#define JOINED(first, second) first##second
#define INIT(name) JOINED(PyInit_, name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""


def extension(name: str, parameters: str, body: str, *, top: str = "") -> str:
    """Return the C++ of a module with one function.

    `values(x)` and `size(x, dimension)` are there for the parameters, which are Python objects.
    """
    names = parameters.split(", ")
    declared = "".join(f"    PyObject* {each};\n" for each in names)
    addresses = ", ".join(f"&{each}" for each in names)
    return (
        f"{_TENSORS}{top}"
        f"static PyObject* {name}(PyObject*, PyObject* arguments) {{\n{declared}"
        f'    if (!PyArg_ParseTuple(arguments, "{"O" * len(names)}", {addresses})) return nullptr;\n'
        f"{body}    Py_RETURN_NONE;\n}}\n{_MODULE.replace('FUNCTION', name)}"
    )

// The part of a split build's bindings that needs pybind11: compiled once for each PyTorch and compiler.
//
// What a function of the module accepts, gives back and raises is decided by the same casters and error handling that
// `load_inline` would have put into the submission's own unit.
#include "warpgrade_bind.h"

#include <torch/extension.h>

namespace warpgrade {

namespace py = pybind11;

namespace {

template <typename T>
std::optional<T> load(PyObject* object) {
  py::detail::make_caster<T> caster;
  if (!caster.load(object, /*convert=*/true)) {
    return std::nullopt;
  }
  return py::detail::cast_op<T>(std::move(caster));
}

template <typename T>
PyObject* cast(const T& value) {
  return py::detail::make_caster<T>::cast(value, py::return_value_policy::copy, py::handle()).ptr();
}

/// Names a type as pybind11 does in signatures.
template <typename T>
struct Name {
  static std::string text() {
    if constexpr (std::is_same_v<T, bool>) {
      return "bool";
    } else if constexpr (std::is_integral_v<T>) {
      return "int";
    } else if constexpr (std::is_floating_point_v<T>) {
      return "float";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return "str";
    } else if constexpr (std::is_same_v<T, at::ScalarType>) {
      return "torch.dtype";
    } else {
      return "torch.Tensor";
    }
  }
};

template <typename T>
struct Name<std::optional<T>> {
  static std::string text() { return "Optional[" + Name<T>::text() + "]"; }
};

template <typename T>
struct Name<std::vector<T>> {
  static std::string text() { return "list[" + Name<T>::text() + "]"; }
};

/// Says why a call does not fit, in pybind11's words.
std::string mismatch(const Function& function, const py::args& arguments) {
  std::string text = std::string(function.name) +
      "(): incompatible function arguments. The following argument types are supported:\n    1. " + function.signature() +
      "\n\nInvoked with: ";
  bool first = true;
  for (const auto argument : arguments) {
    text += (first ? "" : ", ") + py::cast<std::string>(py::repr(argument));
    first = false;
  }
  return text;
}

py::object call(const Function& function, const py::args& arguments) {
  HANDLE_TH_ERRORS
  std::vector<PyObject*> objects;
  objects.reserve(arguments.size());
  for (const auto argument : arguments) {
    objects.push_back(argument.ptr());
  }
  if (objects.size() == function.count) {
    const auto error_before = PyErr_Occurred();
    if (PyObject* result = function.call(objects.data())) {
      return py::reinterpret_steal<py::object>(result);
    }
    if (error_before == nullptr && PyErr_Occurred() != nullptr) {
      throw py::error_already_set();
    }
  }
  throw py::type_error(mismatch(function, arguments));
  END_HANDLE_TH_ERRORS_PYBIND
}

}  // namespace

#define WARPGRADE_DEFINE(...)                                                                            \
  std::optional<__VA_ARGS__> Converter<__VA_ARGS__>::load(Object* object) {                              \
    return warpgrade::load<__VA_ARGS__>(object);                                                         \
  }                                                                                                      \
  Object* Converter<__VA_ARGS__>::cast(const __VA_ARGS__& value) { return warpgrade::cast<__VA_ARGS__>(value); } \
  std::string Converter<__VA_ARGS__>::name() { return Name<__VA_ARGS__>::text(); }

WARPGRADE_CONVERTERS(WARPGRADE_DEFINE)

Object* tuple_of(Object** items, std::size_t count) {
  py::tuple tuple(count);
  bool whole = true;
  for (std::size_t index = 0; index < count; ++index) {
    whole = whole && items[index] != nullptr;
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(index), items[index]);
  }
  if (!whole) {
    throw py::error_already_set();
  }
  return tuple.release().ptr();
}

Object* none() { return py::none().release().ptr(); }

std::string joined_names(const std::string* names, std::size_t count) {
  std::string text;
  for (std::size_t index = 0; index < count; ++index) {
    text += (index == 0 ? "" : ", ") + names[index];
  }
  return text;
}

Object* make_module(const char* name, const Function* functions, std::size_t count) {
  static py::module_::module_def definition;
  py::detail::get_internals();
  try {
    auto module = py::module_::create_extension_module(name, nullptr, &definition);
    py::options options;
    options.disable_function_signatures();
    for (std::size_t index = 0; index < count; ++index) {
      const Function& function = functions[index];
      const std::string doc = std::string(function.name) + function.signature() + "\n\n" + function.description + "\n";
      module.attr(function.name) = py::cpp_function(
          [&function](const py::args& arguments) { return call(function, arguments); },
          py::name(function.name),
          py::scope(module),
          py::doc(doc.c_str()));
    }
    return module.release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}

}  // namespace warpgrade

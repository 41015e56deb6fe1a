// Bindings without pybind11 in the submission's unit: templates over `&function`, and declarations of converters. The
// definitions in support.cpp use pybind11's casters; support.cpp is compiled once and linked into every split build.
// Other argument types fail to compile, and the build continues with the next step.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

extern "C" {
struct _object;
}

namespace warpgrade {

using Object = ::_object;

/// Conversion between Python and `T`. `load` returns nothing for an object that pybind11 would reject; `cast` returns a
/// new reference, or throws.
template <typename T>
struct Converter;

#define WARPGRADE_CONVERTER(...)                            \
  template <>                                               \
  struct Converter<__VA_ARGS__> {                           \
    static std::optional<__VA_ARGS__> load(Object* object); \
    static Object* cast(const __VA_ARGS__& value);          \
    static std::string name();                              \
  };

#define WARPGRADE_CONVERTERS(CONVERTER)    \
  CONVERTER(at::Tensor)                    \
  CONVERTER(std::optional<at::Tensor>)     \
  CONVERTER(std::vector<at::Tensor>)       \
  CONVERTER(bool)                          \
  CONVERTER(int)                           \
  CONVERTER(unsigned)                      \
  CONVERTER(long)                          \
  CONVERTER(unsigned long)                 \
  CONVERTER(long long)                     \
  CONVERTER(float)                         \
  CONVERTER(double)                        \
  CONVERTER(std::string)                   \
  CONVERTER(std::optional<bool>)           \
  CONVERTER(std::optional<int>)            \
  CONVERTER(std::optional<long>)           \
  CONVERTER(std::optional<double>)         \
  CONVERTER(std::optional<float>)          \
  CONVERTER(std::vector<int>)              \
  CONVERTER(std::vector<long>)             \
  CONVERTER(std::vector<float>)            \
  CONVERTER(std::vector<double>)           \
  CONVERTER(at::ScalarType)

WARPGRADE_CONVERTERS(WARPGRADE_CONVERTER)

/// Creates a tuple from new references and takes ownership; throws if a reference is null.
Object* tuple_of(Object** items, std::size_t count);
Object* none();
std::string joined_names(const std::string* names, std::size_t count);

template <typename... Items>
struct Converter<std::tuple<Items...>> {
  static Object* cast(const std::tuple<Items...>& value) {
    return std::apply(
        [](const Items&... items) {
          Object* objects[] = {Converter<Items>::cast(items)...};
          return tuple_of(objects, sizeof...(Items));
        },
        value);
  }
  static std::string name() {
    const std::string names[] = {Converter<Items>::name()...};
    return "tuple[" + joined_names(names, sizeof...(Items)) + "]";
  }
};

template <typename First, typename Second>
struct Converter<std::pair<First, Second>> {
  static Object* cast(const std::pair<First, Second>& value) {
    return Converter<std::tuple<First, Second>>::cast(value);
  }
  static std::string name() { return Converter<std::tuple<First, Second>>::name(); }
};

/// Function of a module with `count` arguments. `call` returns null for an argument of the wrong type.
struct Function {
  const char* name;
  const char* description;
  std::size_t count;
  Object* (*call)(Object* const* arguments);
  std::string (*signature)();
};

template <typename T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <auto function>
struct Binding;

template <typename Result, typename... Arguments, Result (*function)(Arguments...)>
struct Binding<function> {
  static constexpr std::size_t count = sizeof...(Arguments);

  static Object* call(Object* const* objects) { return call_with(objects, std::index_sequence_for<Arguments...>()); }

  template <std::size_t... index>
  static Object* call_with([[maybe_unused]] Object* const* objects, std::index_sequence<index...>) {
    std::tuple<std::optional<Plain<Arguments>>...> values{Converter<Plain<Arguments>>::load(objects[index])...};
    if (!(std::get<index>(values).has_value() && ...)) {
      return nullptr;
    }
    if constexpr (std::is_void_v<Result>) {
      function(static_cast<Arguments&&>(*std::get<index>(values))...);
      return none();
    } else {
      return Converter<Plain<Result>>::cast(function(static_cast<Arguments&&>(*std::get<index>(values))...));
    }
  }

  static std::string signature() {
    std::string text = "(";
    std::size_t index = 0;
    ((text += (index == 0 ? "arg" : ", arg") + std::to_string(index) + ": " + Converter<Plain<Arguments>>::name(), ++index),
     ...);
    if constexpr (std::is_void_v<Result>) {
      return text + ") -> None";
    } else {
      return text + ") -> " + Converter<Plain<Result>>::name();
    }
  }
};

template <auto function>
constexpr Function bind(const char* name, const char* description) {
  return {name, description, Binding<function>::count, &Binding<function>::call, &Binding<function>::signature};
}

/// Creates the module for `PyInit_…`; returns null with a Python exception set on failure.
Object* make_module(const char* name, const Function* functions, std::size_t count);

}  // namespace warpgrade

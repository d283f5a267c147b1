// Converts exceptions of libtorch to messages: none may propagate into Rust.

#pragma once

#include <c10/util/Exception.h>

#include <cstring>
#include <exception>

// Returns null, or a message that the caller frees with ringmark_free_message.
template <typename Body>
char* guarded(Body body) {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("unknown exception (not a std::exception)");
  }
}

#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dissociated {

/// What kind of failure, with the numbers of format-docs/errors.md.
enum class Code : uint32_t {
  kInvalidArgument = 1,
  kNotFound = 2,
  kUnauthenticated = 3,
  kPermissionDenied = 4,
  kUnavailable = 5,
  kTimedOut = 6,
  kResourceExhausted = 7,
  kProtocolViolation = 8,
  kDataCorrupt = 9,
  kUnsupported = 10,
  kInternal = 11,
  kCancelled = 12,
};

/// The name as format-docs/errors.md writes it; a number that is not there is INTERNAL.
std::string_view CodeName(Code code);

/// The one exception of this peer. The text reads: what failed, since what, then key=value.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}

  Code code() const { return code_; }

 private:
  Code code_;
};

[[noreturn]] inline void Violation(const std::string& text) {
  throw Error(Code::kProtocolViolation, text);
}

}  // namespace dissociated

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dissociated {

/// Where a stream can be had: format-docs/uri.md. A malformed one is refused with INVALID_ARGUMENT, never in part.
struct Location {
  std::string scheme;
  std::string authority;
  std::string path;  ///< decoded
  std::vector<std::pair<std::string, std::string>> parameters;  ///< decoded, each name once
  std::optional<uint64_t> want_data;
  std::optional<uint64_t> free_data;
  std::optional<uint64_t> error_data;
  std::optional<uint64_t> control;  ///< ucx-mapping.md: the server is one of this project's
  std::optional<std::string> remote_handle;  ///< bytes

  static Location Parse(std::string_view text);

  /// The text of a ucx location. A handle is written in base64.
  static std::string Ucx(const std::string& authority, uint64_t want_data,
                         const std::vector<std::pair<std::string, std::string>>& more = {});
};

/// A host and a port, as an authority or an option writes them; an IPv6 address stands in brackets.
struct HostAndPort {
  std::string host;
  uint16_t port;

  static HostAndPort Parse(std::string_view text);
  std::string ToString() const;
};

std::string Base64(std::string_view bytes);

}  // namespace dissociated

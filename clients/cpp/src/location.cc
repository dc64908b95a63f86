#include "location.h"

#include <algorithm>
#include <charconv>

#include <arrow/util/base64.h>
#include <arrow/util/utf8.h>

#include "error.h"

namespace dissociated {
namespace {

[[noreturn]] void Refuse(const std::string& why, std::string_view text) {
  throw Error(Code::kInvalidArgument, "location refused: " + why + ", location=" + std::string(text));
}

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool IsAlphabetic(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// What may stand in a URI as it is (RFC 3986), the percent sign included.
bool IsUriCharacter(char c) {
  return IsAlphabetic(c) || IsDigit(c) || std::string_view("-._~:/?#[]@!$&'()*+,;=%").find(c) != std::string_view::npos;
}

std::string Decode(std::string_view text, std::string_view whole) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    const char* first = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(first, first + 2, value, 16).ptr != first + 2) {
      Refuse("an escape is not two hexadecimal digits", whole);
    }
    out += static_cast<char>(value);
    i += 2;
  }
  arrow::util::InitializeUTF8();
  if (!arrow::util::ValidateUTF8(out)) {
    Refuse("what is escaped is not UTF-8", whole);
  }
  return out;
}

std::string Encode(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (IsAlphabetic(c) || IsDigit(c) || std::string_view("-._~").find(c) != std::string_view::npos) {
      out += c;
    } else {
      const auto byte = static_cast<uint8_t>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

uint64_t ParseTag(const std::string& name, const std::string& value, std::string_view whole) {
  uint64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, problem] = std::from_chars(value.data(), end, number, 10);
  if (value.empty() || problem != std::errc() || stop != end) {
    Refuse(name + " is not an unsigned 64-bit decimal number", whole);
  }
  return number;
}

/// Both alphabets are read, and the padding may be missing.
std::string ParseHandle(std::string value, std::string_view whole) {
  std::replace(value.begin(), value.end(), '-', '+');
  std::replace(value.begin(), value.end(), '_', '/');
  const size_t digits = std::min(value.find_last_not_of('=') + 1, value.size());
  const bool padded = digits != value.size();
  const bool known = std::all_of(value.begin(), value.begin() + static_cast<ptrdiff_t>(digits), [](char c) {
    return kBase64.find(c) != std::string_view::npos;
  });
  if (!known || digits % 4 == 1 || (padded && value.size() != (digits + 3) / 4 * 4)) {
    Refuse("remote_handle is not base64", whole);
  }
  std::string out;
  uint32_t bits = 0;
  for (size_t i = 0; i < digits; ++i) {
    bits = bits << 6 | static_cast<uint32_t>(kBase64.find(value[i]));
    // Each digit but the first of four completes a byte.
    if (i % 4 != 0) {
      out += static_cast<char>(bits >> (6 - 2 * (i % 4)));
    }
  }
  return out;
}

void ParseParameters(std::string_view query, std::string_view whole, Location& out) {
  while (true) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view parameter = query.substr(0, end);
    const size_t equals = parameter.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      Refuse("a parameter is not name=value", whole);
    }
    std::string name = Decode(parameter.substr(0, equals), whole);
    std::string value = Decode(parameter.substr(equals + 1), whole);
    if (std::any_of(out.parameters.begin(), out.parameters.end(), [&](auto& other) { return other.first == name; })) {
      Refuse("parameter given twice, name=" + name, whole);
    }
    if (name == "want_data") {
      out.want_data = ParseTag(name, value, whole);
    } else if (name == "free_data") {
      out.free_data = ParseTag(name, value, whole);
    } else if (name == "error_data") {
      out.error_data = ParseTag(name, value, whole);
    } else if (name == "control") {
      out.control = ParseTag(name, value, whole);
    } else if (name == "remote_handle") {
      out.remote_handle = ParseHandle(value, whole);
    }
    out.parameters.emplace_back(std::move(name), std::move(value));
    if (end == query.size()) {
      return;
    }
    query.remove_prefix(end + 1);
  }
}

}  // namespace

Location Location::Parse(std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), IsUriCharacter)) {
    Refuse("a character must be escaped", text);
  }
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0 || !IsAlphabetic(text[0]) ||
      text.substr(0, colon).find_first_of("/?#%[]@!$&'()*,;=:_~") != std::string_view::npos) {
    Refuse("it is not scheme://...", text);
  }
  if (text.find('#') != std::string_view::npos) {
    Refuse("it has a fragment", text);
  }
  Location out;
  out.scheme = text.substr(0, colon);
  const std::string_view rest = text.substr(colon + 3);
  const size_t question = std::min(rest.find('?'), rest.size());
  const size_t slash = std::min(rest.find('/'), question);
  out.authority = rest.substr(0, slash);
  out.path = Decode(rest.substr(slash, question - slash), text);
  if (question + 1 < rest.size()) {
    ParseParameters(rest.substr(question + 1), text, out);
  }
  return out;
}

std::string Location::Ucx(const std::string& authority, uint64_t want_data,
                          const std::vector<std::pair<std::string, std::string>>& more) {
  std::string text = "ucx://" + authority + "?want_data=" + std::to_string(want_data);
  for (const auto& [name, value] : more) {
    text += "&" + name + "=" + Encode(value);
  }
  return text;
}

HostAndPort HostAndPort::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  HostAndPort out{};
  if (colon != std::string_view::npos && colon > 0) {
    const std::string_view port = text.substr(colon + 1);
    const auto [stop, problem] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    std::string_view host = text.substr(0, colon);
    const bool bracketed = host.front() == '[' && host.back() == ']';
    if (bracketed) {
      host = host.substr(1, host.size() - 2);
    }
    if (!port.empty() && problem == std::errc() && stop == port.data() + port.size() && !host.empty() &&
        (bracketed || host.find(':') == std::string_view::npos)) {
      out.host = host;
      return out;
    }
  }
  throw Error(Code::kInvalidArgument, "address refused: not HOST:PORT, address=" + std::string(text));
}

std::string HostAndPort::ToString() const {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string Base64(std::string_view bytes) { return arrow::util::base64_encode(bytes); }

}  // namespace dissociated

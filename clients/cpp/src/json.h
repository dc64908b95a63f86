#pragma once

#include <string>
#include <string_view>

namespace dissociated {

/// A JSON object of one line, written field by field.
class JsonLine {
 public:
  JsonLine& Text(std::string_view key, std::string_view value) { return Raw(key, Quote(value)); }
  JsonLine& Number(std::string_view key, int64_t value) { return Raw(key, std::to_string(value)); }
  JsonLine& Number(std::string_view key, double value) { return Raw(key, std::to_string(value)); }

  /// The value is JSON already.
  JsonLine& Raw(std::string_view key, std::string_view value) {
    text_ += (text_.empty() ? "{" : ",") + Quote(key) + ":";
    text_ += value;
    return *this;
  }

  /// An array of what `quote` makes of each value.
  template <typename Values, typename Quoted>
  JsonLine& Array(std::string_view key, const Values& values, Quoted quote) {
    std::string list;
    for (const auto& value : values) {
      list += (list.empty() ? "" : ",") + quote(value);
    }
    return Raw(key, "[" + list + "]");
  }

  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

  static std::string Quote(std::string_view value) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') {
        out += {'\\', c};
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += {'\\', 'u', '0', '0', kDigits[c >> 4], kDigits[c & 15]};
      } else {
        out += c;
      }
    }
    return out + "\"";
  }

 private:
  std::string text_;
};

}  // namespace dissociated

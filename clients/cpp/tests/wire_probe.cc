// Reads lines "KIND<blank>HEX" (for locations the text instead), decodes each, and prints one line of JSON: what was
// read and the bytes that the writer makes of it, or the code of the error.
#include <cstdio>
#include <iostream>
#include <string>

#include "json.h"
#include "location.h"
#include "wire.h"

namespace dissociated {
namespace {

wire::Bytes FromHex(const std::string& text) {
  wire::Bytes out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    out.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::string ToHex(wire::View bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : bytes) {
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::string Decimal(uint64_t value) { return JsonLine::Quote(std::to_string(value)); }

JsonLine ProbeMetadata(const wire::Bytes& bytes) {
  const wire::Prefix prefix = wire::ReadPrefix(bytes);
  const bool metadata = prefix.type == wire::MetadataType::kMetadata;
  wire::Bytes again(bytes);
  prefix.WriteTo(again.data());
  JsonLine line;
  line.Text("type", metadata ? "metadata" : "end_of_stream").Number("sequence", int64_t{prefix.sequence});
  if (metadata) {
    line.Text("flatbuffer", ToHex(wire::View(bytes).subspan(wire::kPrefixLength)));
  }
  return line.Text("hex", ToHex(again));
}

JsonLine ProbeTag(const wire::Bytes& bytes) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) {
    value = value << 8 | bytes.at(i);
  }
  const wire::BodyTag tag = wire::ReadBodyTag(value);
  wire::Bytes again;
  for (size_t i = 0; i < 8; ++i) {
    again.push_back(static_cast<uint8_t>(tag.value() >> 8 * i));
  }
  JsonLine line;
  line.Number("type", static_cast<int64_t>(tag.type)).Number("sequence", int64_t{tag.sequence});
  return line.Raw("tag", Decimal(tag.value())).Text("hex", ToHex(again));
}

JsonLine ProbeList(const wire::Bytes& bytes) {
  const wire::BufferList list = wire::ReadBufferList(bytes);
  JsonLine line;
  line.Raw("total", Decimal(list.total));
  line.Array("buffers", list.buffers, [](const wire::Range& range) {
    return "[" + Decimal(range.address) + "," + Decimal(range.length) + "]";
  });
  return line.Text("hex", ToHex(wire::WriteBufferList(list)));
}

JsonLine ProbeFree(const wire::Bytes& bytes) {
  const auto addresses = wire::ReadFreeList(bytes);
  JsonLine line;
  line.Array("addresses", addresses, Decimal);
  return line.Text("hex", ToHex(wire::WriteFreeList(addresses)));
}

JsonLine ProbeLocation(const std::string& text) {
  const Location location = Location::Parse(text);
  const auto number = [](const std::optional<uint64_t>& tag) { return tag ? Decimal(*tag) : std::string("null"); };
  JsonLine parameters;
  for (const auto& [name, value] : location.parameters) {
    parameters.Text(name, value);
  }
  JsonLine line;
  line.Text("scheme", location.scheme).Text("authority", location.authority).Text("path", location.path);
  line.Raw("want_data", number(location.want_data)).Raw("free_data", number(location.free_data));
  const auto& handle = location.remote_handle;
  const auto* bytes = handle ? reinterpret_cast<const uint8_t*>(handle->data()) : nullptr;
  line.Raw("remote_handle", handle ? JsonLine::Quote(ToHex({bytes, handle->size()})) : "null");
  return line.Raw("parameters", parameters.text());
}

JsonLine Probe(const std::string& kind, const std::string& text) {
  if (kind == "uri") {
    return ProbeLocation(text);
  }
  const wire::Bytes bytes = FromHex(text);
  if (kind == "metadata-message") {
    return ProbeMetadata(bytes);
  }
  if (kind == "body-tag") {
    return ProbeTag(bytes);
  }
  return kind == "buffer-list" ? ProbeList(bytes) : ProbeFree(bytes);
}

}  // namespace
}  // namespace dissociated

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const size_t blank = line.find(' ');
    dissociated::JsonLine answer;
    try {
      answer = dissociated::Probe(line.substr(0, blank), line.substr(blank + 1));
    } catch (const dissociated::Error& e) {
      answer.Text("error", CodeName(e.code()));
    }
    std::printf("%s\n", answer.text().c_str());
  }
  return 0;
}

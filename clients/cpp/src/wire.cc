#include "wire.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace dissociated {

std::string_view CodeName(Code code) {
  constexpr std::array<std::string_view, 13> kNames = {
      "INTERNAL",           "INVALID_ARGUMENT",   "NOT_FOUND",    "UNAUTHENTICATED", "PERMISSION_DENIED",
      "UNAVAILABLE",        "TIMED_OUT",          "RESOURCE_EXHAUSTED", "PROTOCOL_VIOLATION", "DATA_CORRUPT",
      "UNSUPPORTED",        "INTERNAL",           "CANCELLED"};
  const auto number = static_cast<size_t>(code);
  return number < kNames.size() ? kNames[number] : kNames[0];
}

namespace wire {

static_assert(std::endian::native == std::endian::little, "integers are copied as they lie");

namespace {

constexpr uint64_t kReservedBits = 0x00FF'FFFF'0000'0000;
constexpr uint64_t kLargestLength = std::numeric_limits<int64_t>::max();

template <typename T>
T Read(View bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void Append(Bytes& out, T value) {
  const size_t end = out.size();
  out.resize(end + sizeof value);
  std::memcpy(out.data() + end, &value, sizeof value);
}

std::string Number(const char* key, uint64_t value) { return std::string(" ") + key + "=" + std::to_string(value); }

}  // namespace

void Prefix::WriteTo(uint8_t* out) const {
  out[0] = static_cast<uint8_t>(type);
  std::memcpy(out + 1, &sequence, sizeof sequence);
}

Prefix ReadPrefix(View message) {
  if (message.size() < kPrefixLength) {
    Violation("metadata message refused: shorter than its prefix," + Number("length", message.size()));
  }
  const Prefix prefix{static_cast<MetadataType>(message[0]), Read<uint32_t>(message, 1)};
  switch (prefix.type) {
    case MetadataType::kEndOfStream:
      if (message.size() != kPrefixLength) {
        Violation("end-of-stream refused: not 5 bytes long," + Number("length", message.size()));
      }
      return prefix;
    case MetadataType::kMetadata:
      if (message.size() == kPrefixLength) {
        Violation("metadata message refused: no flatbuffer," + Number("sequence", prefix.sequence));
      }
      return prefix;
  }
  Violation("metadata message refused: unknown type," + Number("type", message[0]) +
            Number("sequence", prefix.sequence));
}

BodyTag ReadBodyTag(uint64_t tag) {
  const auto type = static_cast<uint8_t>(tag >> 56);
  const auto sequence = static_cast<uint32_t>(tag);
  if ((tag & kReservedBits) != 0) {
    Violation("body refused: reserved bits of its tag are set," + Number("tag", tag) + Number("sequence", sequence));
  }
  if (type > static_cast<uint8_t>(BodyType::kByReference)) {
    Violation("body refused: unknown type," + Number("type", type) + Number("sequence", sequence));
  }
  return {static_cast<BodyType>(type), sequence};
}

BufferList ReadBufferList(View body) {
  if (body.size() < 16) {
    Violation("buffer list refused: shorter than its head," + Number("length", body.size()));
  }
  BufferList list{Read<uint64_t>(body, 0), {}};
  const auto count = Read<uint64_t>(body, 8);
  if (count > kMostBuffers || body.size() != 16 + 16 * count) {
    Violation("buffer list refused: the count is not that of the pairs," + Number("count", count) +
              Number("length", body.size()));
  }
  uint64_t sum = 0;
  list.buffers.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Range range{Read<uint64_t>(body, 16 + 16 * i), Read<uint64_t>(body, 24 + 16 * i)};
    if (range.length > kLargestLength - sum) {
      Violation("buffer list refused: length out of range," + Number("buffer", i) + Number("length", range.length));
    }
    sum += range.length;
    list.buffers.push_back(range);
  }
  if (list.total < sum || list.total > kLargestLength) {
    Violation("buffer list refused: the total is not that of the buffers," + Number("total", list.total) +
              Number("sum", sum));
  }
  return list;
}

Bytes WriteBufferList(const BufferList& list) {
  Bytes out;
  out.reserve(16 + 16 * list.buffers.size());
  Append(out, list.total);
  Append<uint64_t>(out, list.buffers.size());
  for (const Range& range : list.buffers) {
    Append(out, range.address);
    Append(out, range.length);
  }
  return out;
}

std::vector<uint64_t> ReadFreeList(View body) {
  if (body.empty() || body.size() % 8 != 0 || body.size() > kLongestFreeList) {
    Violation("free_data refused: not a list of addresses," + Number("length", body.size()));
  }
  std::vector<uint64_t> addresses(body.size() / 8);
  std::memcpy(addresses.data(), body.data(), body.size());
  return addresses;
}

Bytes WriteFreeList(std::span<const uint64_t> addresses) {
  Bytes out(addresses.size_bytes());
  std::memcpy(out.data(), addresses.data(), out.size());
  return out;
}

Error ReadError(View body) {
  if (body.size() < sizeof(uint32_t)) {
    Violation("error_data refused: shorter than its code," + Number("length", body.size()));
  }
  std::string text(reinterpret_cast<const char*>(body.data()) + sizeof(uint32_t), body.size() - sizeof(uint32_t));
  const auto code = Read<uint32_t>(body, 0);
  const bool known = code >= 1 && code <= static_cast<uint32_t>(Code::kCancelled);
  return {known ? static_cast<Code>(code) : Code::kInternal, text};
}

Bytes WriteError(const Error& error) {
  Bytes out;
  Append(out, static_cast<uint32_t>(error.code()));
  for (const char* text = error.what(); *text != '\0'; ++text) {
    out.push_back(static_cast<uint8_t>(*text));
  }
  return out;
}

}  // namespace wire
}  // namespace dissociated

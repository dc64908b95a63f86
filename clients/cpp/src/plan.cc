#include "plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "joiner.h"

namespace dissociated {
namespace {

using Kind = Step::Kind;
using Steps = std::vector<Step>;

constexpr std::array<std::pair<std::string_view, ServerFault>, 31> kNames = {{
    {"none", ServerFault::kNone},
    {"reorder", ServerFault::kReorder},
    {"bodies-first", ServerFault::kBodiesFirst},
    {"end-first", ServerFault::kEndFirst},
    {"gap", ServerFault::kGap},
    {"duplicate", ServerFault::kDuplicate},
    {"duplicate-body", ServerFault::kDuplicateBody},
    {"reserved-bits", ServerFault::kReservedBits},
    {"shift-55", ServerFault::kShift55},
    {"unknown-type", ServerFault::kUnknownType},
    {"bad-eos", ServerFault::kBadEos},
    {"long-eos", ServerFault::kLongEos},
    {"early-eos", ServerFault::kEarlyEos},
    {"late-eos", ServerFault::kLateEos},
    {"no-eos", ServerFault::kNoEos},
    {"silent", ServerFault::kSilent},
    {"silent-midway", ServerFault::kSilentMidway},
    {"no-body", ServerFault::kNoBody},
    {"die-midway", ServerFault::kDieMidway},
    {"close-midway", ServerFault::kCloseMidway},
    {"short-body", ServerFault::kShortBody},
    {"long-body", ServerFault::kLongBody},
    {"garbage-metadata", ServerFault::kGarbageMetadata},
    {"short-prefix", ServerFault::kShortPrefix},
    {"unknown-message", ServerFault::kUnknownMessage},
    {"no-schema", ServerFault::kNoSchema},
    {"body-of-schema", ServerFault::kBodyOfSchema},
    {"type1-list", ServerFault::kType1List},
    {"type1-bad-count", ServerFault::kType1BadCount},
    {"type1-short", ServerFault::kType1Short},
    {"error", ServerFault::kError},
}};

wire::Bytes Metadata(wire::Prefix prefix, wire::View flatbuffer = {}) {
  wire::Bytes out(wire::kPrefixLength + flatbuffer.size());
  prefix.WriteTo(out.data());
  std::copy(flatbuffer.begin(), flatbuffer.end(), out.begin() + wire::kPrefixLength);
  return out;
}

wire::View ViewOf(const arrow::Buffer& buffer) { return {buffer.data(), static_cast<size_t>(buffer.size())}; }

/// The list of a body's buffers.
wire::BufferList ListOf(const ImageMessage& message, ListForm form) {
  std::vector<wire::Range> buffers = message.placed;
  uint64_t total = 0;
  for (const wire::Range& range : buffers) {
    total += range.length;
  }
  const auto first = std::find_if(buffers.begin(), buffers.end(), [](auto& range) { return range.length > 0; });
  if (form == ListForm::kWhole && first != buffers.end()) {
    // The first buffer that has bytes starts the packed body.
    return {message.body_length, {{first->address, message.body_length}}};
  }
  if (form == ListForm::kNonEmpty) {
    std::erase_if(buffers, [](const wire::Range& range) { return range.length == 0; });
  }
  return {total, buffers};
}

Step BodyOf(const ImageMessage& message, uint32_t sequence, std::optional<ListForm> by_reference) {
  Step step{Kind::kBody, 0, {}, {}, {}};
  if (!by_reference) {
    step.tag = wire::BodyTag{wire::BodyType::kPacked, sequence}.value();
    step.parts = message.parts;
    return step;
  }
  const wire::BufferList list = ListOf(message, *by_reference);
  step.tag = wire::BodyTag{wire::BodyType::kByReference, sequence}.value();
  step.bytes = wire::WriteBufferList(list);
  for (const wire::Range& range : list.buffers) {
    if (range.length > 0) {
      step.leases.push_back(range.address);
    }
  }
  return step;
}

/// The body as one piece, so that it can be spoiled.
wire::Bytes Joined(const Step& body) {
  wire::Bytes out = body.bytes;
  for (const auto& part : body.parts) {
    const wire::View view = ViewOf(*part);
    out.insert(out.end(), view.begin(), view.end());
  }
  return out;
}

Steps::iterator FirstBody(Steps& steps) {
  const auto found = std::find_if(steps.begin(), steps.end(), [](auto& step) { return step.kind == Kind::kBody; });
  if (found == steps.end()) {
    throw Error(Code::kInvalidArgument, "fault not possible: the stream has no body");
  }
  return found;
}

void SpoilBody(Steps& steps, ServerFault fault) {
  const auto body = FirstBody(steps);
  const auto sequence = static_cast<uint32_t>(body->tag);
  switch (fault) {
    case ServerFault::kDuplicateBody:
      steps.insert(body, Step(*body));
      break;
    case ServerFault::kReservedBits:
      body->tag |= uint64_t{1} << 40;
      break;
    case ServerFault::kShift55:
      body->tag |= uint64_t{1} << 55;
      break;
    case ServerFault::kUnknownType:
      body->tag |= uint64_t{7} << 56;
      break;
    case ServerFault::kSilentMidway:
      steps.erase(body + 1, steps.end());
      steps.push_back({Kind::kSilence, 0, {}, {}, {}});
      break;
    case ServerFault::kNoBody:
      steps.erase(body);
      break;
    case ServerFault::kDieMidway:
      *body = {Kind::kDeath, 0, {}, {}, {}};
      break;
    case ServerFault::kCloseMidway:
      steps.erase(body + 1, steps.end());
      steps.push_back({Kind::kClose, 0, {}, {}, {}});
      break;
    case ServerFault::kShortBody:
    case ServerFault::kLongBody:
      body->bytes = Joined(*body);
      body->parts.clear();
      body->bytes.resize(fault == ServerFault::kLongBody       ? body->bytes.size() + 8
                         : body->bytes.size() >= 8 ? body->bytes.size() - 8
                                                   : 0);
      break;
    case ServerFault::kType1List:
      *body = {Kind::kBody, wire::BodyTag{wire::BodyType::kByReference, sequence}.value(),
               wire::WriteBufferList({8, {{0x1000, 8}}}), {}, {}};
      break;
    case ServerFault::kType1BadCount:
      body->bytes.at(8) ^= 1;
      break;
    case ServerFault::kType1Short: {
      wire::BufferList list = wire::ReadBufferList(body->bytes);
      const auto range = std::find_if(list.buffers.begin(), list.buffers.end(), [](auto& r) { return r.length > 0; });
      if (range != list.buffers.end()) {
        --range->length;
      }
      body->bytes = wire::WriteBufferList(list);
      break;
    }
    case ServerFault::kError:
      steps.erase(body + 1, steps.end());
      steps.push_back({Kind::kError, 0, wire::WriteError(Error(Code::kDataCorrupt, "producer failed: on purpose")),
                       {}, {}});
      break;
    default:
      break;
  }
}

/// Metadata of message 1, which every stream but an empty one has.
Steps::iterator SecondMetadata(Steps& steps) {
  const auto second = [](const Step& step) { return step.kind == Kind::kMetadata && step.bytes[1] == 1; };
  const auto found = std::find_if(steps.begin(), steps.end(), second);
  if (found == steps.end() || found + 1 == steps.end()) {
    throw Error(Code::kInvalidArgument, "fault not possible: the stream has no second message");
  }
  return found;
}

void SpoilMetadata(Steps& steps, ServerFault fault) {
  const auto metadata = SecondMetadata(steps);
  switch (fault) {
    case ServerFault::kGap:
      steps.erase(metadata, metadata + 2);
      break;
    case ServerFault::kDuplicate:
      steps.insert(metadata, Step(*metadata));
      break;
    case ServerFault::kGarbageMetadata:
      std::fill(metadata->bytes.begin() + wire::kPrefixLength, metadata->bytes.end(), 0xA5);
      break;
    case ServerFault::kShortPrefix:
      metadata->bytes.resize(3);
      break;
    case ServerFault::kUnknownMessage:
      metadata->bytes[0] = 9;
      break;
    default:
      break;
  }
}

void SpoilEnd(Steps& steps, ServerFault fault) {
  wire::Bytes& end = steps.back().bytes;
  const wire::Prefix prefix = wire::ReadPrefix(end);
  switch (fault) {
    case ServerFault::kBadEos:
      end.resize(4);
      break;
    case ServerFault::kLongEos:
      end.push_back(0);
      break;
    case ServerFault::kEarlyEos:
      end = Metadata({prefix.type, prefix.sequence - 1});
      break;
    case ServerFault::kLateEos:
      end = Metadata({prefix.type, prefix.sequence + 1});
      break;
    case ServerFault::kNoEos:
      steps.pop_back();
      break;
    default:
      break;
  }
}

void Rearrange(Steps& steps, ServerFault fault) {
  if (fault == ServerFault::kBodiesFirst) {
    std::stable_partition(steps.begin(), steps.end(), [](auto& step) { return step.kind == Kind::kBody; });
  } else if (fault == ServerFault::kEndFirst) {
    const auto second = SecondMetadata(steps);
    std::rotate(second, steps.end() - 1, steps.end());
  } else {
    // Schema and end stay; each message between has two steps, its metadata and its body.
    for (size_t i = 1; i + 4 < steps.size(); i += 4) {
      const auto first = steps.begin() + static_cast<ptrdiff_t>(i);
      std::rotate(first, first + 2, first + 4);
    }
  }
}

void Spoil(Steps& steps, const Image& image, ServerFault fault) {
  switch (fault) {
    case ServerFault::kNone:
      return;
    case ServerFault::kReorder:
    case ServerFault::kBodiesFirst:
    case ServerFault::kEndFirst:
      return Rearrange(steps, fault);
    case ServerFault::kGap:
    case ServerFault::kDuplicate:
    case ServerFault::kGarbageMetadata:
    case ServerFault::kShortPrefix:
    case ServerFault::kUnknownMessage:
      return SpoilMetadata(steps, fault);
    case ServerFault::kBadEos:
    case ServerFault::kLongEos:
    case ServerFault::kEarlyEos:
    case ServerFault::kLateEos:
    case ServerFault::kNoEos:
      return SpoilEnd(steps, fault);
    case ServerFault::kSilent:
      steps.assign(1, {Kind::kSilence, 0, {}, {}, {}});
      return;
    case ServerFault::kNoSchema: {
      const auto second = SecondMetadata(steps);
      steps.front().bytes = second->bytes;
      std::fill_n(steps.front().bytes.begin() + 1, 4, uint8_t{0});
      return;
    }
    case ServerFault::kBodyOfSchema:
      steps.insert(steps.begin() + 1, BodyOf(image.messages.back(), 0, std::nullopt));
      return;
    default:
      return SpoilBody(steps, fault);
  }
}

}  // namespace

ServerFault ParseServerFault(std::string_view name) {
  const auto found = std::find_if(kNames.begin(), kNames.end(), [&](auto& entry) { return entry.first == name; });
  if (found != kNames.end()) {
    return found->second;
  }
  std::string known;
  for (const auto& entry : kNames) {
    known += " " + std::string(entry.first);
  }
  throw Error(Code::kInvalidArgument, "unknown fault: " + std::string(name) + ", known:" + known);
}

std::vector<Step> MakePlan(const Image& image, std::optional<ListForm> by_reference, ServerFault fault) {
  Steps steps;
  uint32_t sequence = 0;
  for (const ImageMessage& message : image.messages) {
    steps.push_back({Kind::kMetadata, 0,
                     Metadata({wire::MetadataType::kMetadata, sequence}, ViewOf(*message.flatbuffer)), {}, {}});
    if (message.has_body) {
      steps.push_back(BodyOf(message, sequence, by_reference));
    }
    ++sequence;
  }
  steps.push_back({Kind::kMetadata, 0, Metadata({wire::MetadataType::kEndOfStream, sequence}), {}, {}});
  Spoil(steps, image, fault);
  return steps;
}

}  // namespace dissociated

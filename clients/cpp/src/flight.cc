#include "flight.h"

#include <chrono>

#include <arrow/flight/api.h>
#include <arrow/ipc/reader.h>

#include "joiner.h"

namespace dissociated {
namespace {

namespace flight = arrow::flight;

constexpr auto kLongestCall = std::chrono::seconds(20);

flight::FlightDescriptor DescriptorOf(const std::string& name) { return flight::FlightDescriptor::Path({name}); }

void CheckCall(const arrow::Status& status) {
  if (status.ok()) {
    return;
  }
  Code code = status.IsKeyError() ? Code::kNotFound : Code::kInternal;
  if (const auto detail = flight::FlightStatusDetail::UnwrapStatus(status)) {
    switch (detail->code()) {
      case flight::FlightStatusCode::Unavailable:
        code = Code::kUnavailable;
        break;
      case flight::FlightStatusCode::TimedOut:
        code = Code::kTimedOut;
        break;
      case flight::FlightStatusCode::Unauthenticated:
        code = Code::kUnauthenticated;
        break;
      case flight::FlightStatusCode::Unauthorized:
        code = Code::kPermissionDenied;
        break;
      case flight::FlightStatusCode::Cancelled:
        code = Code::kCancelled;
        break;
      default:
        break;
    }
  }
  throw Error(code, "Flight call failed: " + status.message());
}

/// The messages of an image, for Arrow's own reader.
class ImageMessages : public arrow::ipc::MessageReader {
 public:
  explicit ImageMessages(const Image& image) : image_(image) {}

  arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override {
    if (next_ == image_.messages.size()) {
      return nullptr;
    }
    const ImageMessage& message = image_.messages[next_++];
    std::shared_ptr<arrow::Buffer> body;
    if (message.has_body) {
      ARROW_ASSIGN_OR_RAISE(body, arrow::ConcatenateBuffers(message.parts));
    }
    return arrow::ipc::Message::Open(message.flatbuffer, body);
  }

 private:
  const Image& image_;
  size_t next_ = 0;
};

}  // namespace

Found FindByFlight(const std::string& uri, const std::string& name) {
  const auto location = flight::Location::Parse(uri);
  if (!location.ok()) {
    throw Error(Code::kInvalidArgument, "Flight location refused: " + location.status().message());
  }
  const auto client = Take(flight::FlightClient::Connect(*location), "Flight connection not made");
  flight::FlightCallOptions options;
  options.timeout = kLongestCall;
  const auto answer = client->GetFlightInfo(options, DescriptorOf(name));
  CheckCall(answer.status());
  const auto& endpoints = (*answer)->endpoints();
  if (endpoints.size() != 1) {
    throw Error(Code::kUnsupported, "stream not readable: one endpoint is needed, endpoints=" +
                                        std::to_string(endpoints.size()));
  }
  Found found{endpoints[0].ticket.ticket, {}};
  for (const auto& place : endpoints[0].locations) {
    if (place.scheme() == "ucx") {
      found.locations.push_back(Location::Parse(place.ToString()));
    }
  }
  if (found.locations.empty() || found.locations.size() > 2) {
    throw Error(Code::kUnsupported, "stream not readable: one or two ucx locations are needed, locations=" +
                                        std::to_string(found.locations.size()));
  }
  return found;
}

class FlightDirectory::Impl : public flight::FlightServerBase {
 public:
  Impl(const std::map<std::string, Image>& images, std::vector<std::string> locations)
      : images_(images), locations_(std::move(locations)) {}

  arrow::Status GetFlightInfo(const flight::ServerCallContext&, const flight::FlightDescriptor& request,
                              std::unique_ptr<flight::FlightInfo>* info) override {
    if (request.type != flight::FlightDescriptor::PATH || request.path.size() != 1) {
      return arrow::Status::Invalid("the descriptor must be the path of one name");
    }
    ARROW_ASSIGN_OR_RAISE(const Image* image, Find(request.path[0]));
    flight::FlightEndpoint endpoint;
    endpoint.ticket.ticket = request.path[0];
    for (const std::string& location : locations_) {
      ARROW_ASSIGN_OR_RAISE(auto place, flight::Location::Parse(location));
      endpoint.locations.push_back(place);
    }
    ARROW_ASSIGN_OR_RAISE(auto made,
                          flight::FlightInfo::Make(*image->schema, request, {endpoint}, image->rows, -1));
    *info = std::make_unique<flight::FlightInfo>(std::move(made));
    return arrow::Status::OK();
  }

  arrow::Status DoGet(const flight::ServerCallContext&, const flight::Ticket& request,
                      std::unique_ptr<flight::FlightDataStream>* stream) override {
    ARROW_ASSIGN_OR_RAISE(const Image* image, Find(request.ticket));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(
                                           std::make_unique<ImageMessages>(*image)));
    *stream = std::make_unique<flight::RecordBatchStream>(reader);
    return arrow::Status::OK();
  }

 private:
  arrow::Result<const Image*> Find(const std::string& name) const {
    const auto found = images_.find(name);
    if (found == images_.end()) {
      return arrow::Status::KeyError("no such stream: name=", name);
    }
    return &found->second;
  }

  const std::map<std::string, Image>& images_;
  const std::vector<std::string> locations_;
};

FlightDirectory::FlightDirectory(const std::string& uri, const std::map<std::string, Image>& images,
                                 std::vector<std::string> locations)
    : impl_(std::make_unique<Impl>(images, std::move(locations))) {
  const auto location = flight::Location::Parse(uri);
  if (!location.ok()) {
    throw Error(Code::kInvalidArgument, "Flight location refused: " + location.status().message());
  }
  CheckCall(impl_->Init(flight::FlightServerOptions(*location)));
}

FlightDirectory::~FlightDirectory() {
  const auto end = std::chrono::system_clock::now() + std::chrono::seconds(1);
  static_cast<void>(impl_->Shutdown(&end));
}

std::string FlightDirectory::uri() const {
  const std::string text = impl_->location().ToString();
  return text.substr(0, text.rfind(':') + 1) + std::to_string(impl_->port());
}

}  // namespace dissociated

#include <sys/signalfd.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client.h"
#include "flight.h"
#include "json.h"
#include "server.h"

namespace dissociated {
namespace {

constexpr const char* kUsage = R"(Usage:
  dissociated-cpp serve [options] NAME=FILE...
    --listen HOST:PORT     where to wait for connections (127.0.0.1:0; port 0 picks a free one)
    --pair | --inline      locations: metadata and data apart, as the C++ reference gives them out (default), or together
    --flight URI           also a Flight server that names these locations (grpc://127.0.0.1:0)
    --by-reference FORM    bodies as lists of addresses: each, whole or nonempty
    --fault FAULT          go wrong on purpose; an unknown name lists the known ones
  dissociated-cpp get URI [URI2] NAME [options]
    URI is a Flight server (grpc://...), a ucx location, or the ucx locations of metadata and data
    --output F.arrow       write an Arrow file, or a stream if the name ends in .arrows
    --json                 print JSON
    --timeout SECONDS      longest silence of the server (30)
    --spin                 wait busily
    --fault FAULT          go wrong on purpose
  --verbose                say more on standard error
)";

[[noreturn]] void BadUsage(const std::string& text) { throw Error(Code::kInvalidArgument, text); }

/// The words of a command line: options with and without a value, and the rest.
class Words {
 public:
  Words(int count, char** words, const std::set<std::string>& with_value, const std::set<std::string>& without) {
    for (int i = 0; i < count; ++i) {
      const std::string word = words[i];
      const size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      if (word.rfind("--", 0) != 0) {
        rest_.push_back(word);
      } else if (without.count(word) > 0) {
        options_[word] = "";
      } else if (with_value.count(name) == 0) {
        BadUsage("unknown option: " + word);
      } else if (equals != std::string::npos) {
        options_[name] = word.substr(equals + 1);
      } else if (++i == count) {
        BadUsage(word + " needs a value");
      } else {
        options_[word] = words[i];
      }
    }
  }

  bool has(const std::string& name) const { return options_.count(name) > 0; }
  std::string get(const std::string& name, const std::string& otherwise) const {
    const auto found = options_.find(name);
    return found == options_.end() ? otherwise : found->second;
  }
  const std::vector<std::string>& rest() const { return rest_; }

 private:
  std::map<std::string, std::string> options_;
  std::vector<std::string> rest_;
};

void Print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::optional<ListForm> ParseListForm(const Words& words) {
  static const std::map<std::string, ListForm> kForms = {
      {"each", ListForm::kEach}, {"whole", ListForm::kWhole}, {"nonempty", ListForm::kNonEmpty}};
  if (!words.has("--by-reference")) {
    return std::nullopt;
  }
  const auto form = kForms.find(words.get("--by-reference", ""));
  if (form == kForms.end()) {
    BadUsage("--by-reference is one of each, whole, nonempty");
  }
  return form->second;
}

/// Readable when the process is asked to end. Must be called before there are other threads.
int StopDescriptor() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

void Serve(int count, char** arguments) {
  const Words words(count, arguments, {"--listen", "--flight", "--by-reference", "--fault"},
                    {"--pair", "--inline", "--verbose", "--json"});
  if (words.rest().empty()) {
    BadUsage("serve needs NAME=FILE");
  }
  Server::Options options;
  options.listen = HostAndPort::Parse(words.get("--listen", "127.0.0.1:0"));
  options.by_reference = ParseListForm(words);
  options.fault = ParseServerFault(words.get("--fault", "none"));
  options.verbose = words.has("--verbose");
  // Arrow starts threads when it reads files.
  const int stop = StopDescriptor();
  std::map<std::string, Image> images;
  for (const std::string& word : words.rest()) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      BadUsage("not NAME=FILE: " + word);
    }
    images.emplace(word.substr(0, equals), Image::Load(word.substr(equals + 1)));
  }
  Server server(options, std::move(images));
  const auto locations = words.has("--inline") ? server.InlineLocations() : server.PairLocations();
  std::unique_ptr<FlightDirectory> directory;
  JsonLine line;
  line.Text("event", "listening").Number("pid", int64_t{getpid()});
  if (words.has("--flight")) {
    directory = std::make_unique<FlightDirectory>(words.get("--flight", ""), server.images(), locations);
    line.Text("flight", directory->uri());
  }
  line.Raw("transports", "[\"ucx\"]").Array("locations", locations, JsonLine::Quote);
  Print(line.text());
  server.Run(stop);
}

void PrintSummary(const std::string& name, const std::string& metadata, const StreamSummary& summary, bool json) {
  const double rate = summary.seconds > 0 ? static_cast<double>(summary.bytes) / 1e6 / summary.seconds : 0;
  if (!json) {
    std::printf("%s: %lld rows in %lld batches, %lld bytes via ucx in %.3f s\n", name.c_str(),
                static_cast<long long>(summary.rows), static_cast<long long>(summary.batches),
                static_cast<long long>(summary.bytes), summary.seconds);
    return;
  }
  JsonLine line;
  line.Text("name", name).Text("via", "ucx").Text("metadata", metadata);
  line.Number("batches", summary.batches).Number("rows", summary.rows).Number("bytes", summary.bytes);
  line.Array("body_types", summary.body_types, [](int type) { return std::to_string(type); });
  // What the server copied is not told by a plain peer; here, bodies arrive where they stay.
  line.Raw("server_copied_bytes", "null").Number("client_copied_bytes", int64_t{0});
  line.Number("seconds", summary.seconds).Number("mb_per_s", rate);
  Print(line.text());
}

void Get(int count, char** arguments) {
  const Words words(count, arguments, {"--output", "--timeout", "--fault"}, {"--json", "--spin", "--verbose"});
  const auto& rest = words.rest();
  if (rest.size() < 2 || rest.size() > 3) {
    BadUsage("get needs URI [URI2] NAME");
  }
  StreamReader::Options options;
  options.ticket = rest.back();
  options.fault = ParseClientFault(words.get("--fault", "none"));
  options.spin = words.has("--spin");
  const std::string timeout = words.get("--timeout", "30");
  int seconds = 0;
  if (std::from_chars(timeout.data(), timeout.data() + timeout.size(), seconds).ptr != timeout.data() + timeout.size() ||
      seconds <= 0 || seconds > 3600) {
    BadUsage("--timeout is a number of seconds up to 3600: " + timeout);
  }
  options.timeout = std::chrono::seconds(seconds);
  std::vector<Location> locations;
  if (rest[0].rfind("grpc", 0) == 0) {
    Found found = FindByFlight(rest[0], rest.back());
    options.ticket = found.ticket;
    locations = std::move(found.locations);
  } else {
    for (size_t i = 0; i + 1 < rest.size(); ++i) {
      locations.push_back(Location::Parse(rest[i]));
    }
  }
  const StreamSummary summary = Get(locations, options, words.get("--output", ""));
  PrintSummary(rest.back(), locations.size() == 1 ? "inline" : "pair", summary, words.has("--json"));
}

int Run(int count, char** words) {
  const std::string command = count > 1 ? words[1] : "";
  if (command == "serve") {
    Serve(count - 2, words + 2);
  } else if (command == "get") {
    Get(count - 2, words + 2);
  } else if (command == "--help" || command == "help") {
    std::fputs(kUsage, stdout);
  } else {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace dissociated

int main(int count, char** words) {
  // UCX would write of every connection that ends, and replace signal handlers. It reads this when its first object is
  // made, or when it is loaded: then the program starts once more.
  if (getenv("UCX_LOG_LEVEL") == nullptr || getenv("UCX_HANDLE_ERRORS") == nullptr) {
    setenv("UCX_LOG_LEVEL", "fatal", 0);
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    execv("/proc/self/exe", words);
  }
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return dissociated::Run(count, words);
  } catch (const dissociated::Error& e) {
    std::fprintf(stderr, "dissociated-cpp: %s code=%s\n", e.what(), std::string(CodeName(e.code())).c_str());
    return e.code() == dissociated::Code::kInvalidArgument ? 2 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dissociated-cpp: failed: %s code=INTERNAL\n", e.what());
    return 1;
  }
}

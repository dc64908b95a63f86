#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "image.h"
#include "location.h"

namespace dissociated {

/// What a Flight server says of a stream: where it can be had, and with which ticket.
struct Found {
  std::string ticket;
  std::vector<Location> locations;
};

/// Asks a Flight server for a stream and takes the ucx locations of its only endpoint: two are metadata and data, as the
/// C++ reference gives them out; of one, both come on one connection.
Found FindByFlight(const std::string& uri, const std::string& name);

/// A Flight server that names the ucx locations of each stream, as the C++ reference does, and also serves it by DoGet.
class FlightDirectory {
 public:
  FlightDirectory(const std::string& uri, const std::map<std::string, Image>& images,
                  std::vector<std::string> locations);
  ~FlightDirectory();

  std::string uri() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dissociated

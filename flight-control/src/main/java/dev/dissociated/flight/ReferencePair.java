package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Two locations of one listener, as the C++ reference writes them (format-docs/uri.md).
 *
 * @param metadata where untagged messages come from
 * @param bodies where tagged ones come from
 */
record ReferencePair(DissociatedUri metadata, DissociatedUri bodies) {
  /** The first pair of that scheme among an endpoint's locations. */
  static Optional<ReferencePair> among(List<String> locations, String scheme) {
    List<DissociatedUri> known = new ArrayList<>();
    for (String location : locations) {
      if (location.startsWith(scheme + ":")) {
        try {
          known.add(DissociatedUri.parse(location));
        } catch (DissociatedException e) {
          known.clear(); // told when it is tried by itself
        }
      }
    }
    for (int i = 1; i < known.size(); i++) {
      if (isPair(known.get(i - 1), known.get(i))) {
        return Optional.of(new ReferencePair(known.get(i - 1), known.get(i)));
      }
    }
    return Optional.empty();
  }

  /** Whether the two differ in nothing but the tag that asks for a stream. */
  static boolean isPair(DissociatedUri first, DissociatedUri second) {
    return first.wantData().isPresent()
        && second.wantData().isPresent()
        && !first.wantData().equals(second.wantData())
        && first.withWantData(0).equals(second.withWantData(0));
  }
}

package dev.dissociated.store.flight;

import java.util.Optional;
import org.apache.arrow.flight.ActionType;

/** What the store does by Flight's actions; see format-docs/flight-mapping.md. */
enum StoreAction {
  LIST("store.list", "Objects whose names begin with PREFIX: {\"prefix\": PREFIX}", false),
  STAT("store.stat", "What is known of an object: {\"name\": NAME}", false),
  WAIT("store.wait", "The same once it is there: {\"name\": NAME, \"wait_ms\": MS}", false),
  USAGE("store.usage", "What the store has and who holds it", false),
  DELETE("store.delete", "Takes a name away: {\"name\": NAME}", true),
  CHANGE(
      "store.change",
      "Pins or unpins, or sets the time to live: {\"name\": NAME, \"pin\": BOOL, \"ttl_ms\": MS}",
      true);

  final String type;
  final String description;
  final boolean writes;

  StoreAction(String type, String description, boolean writes) {
    this.type = type;
    this.description = description;
    this.writes = writes;
  }

  ActionType toFlight() {
    return new ActionType(type, description);
  }

  static Optional<StoreAction> of(String type) {
    for (StoreAction action : values()) {
      if (action.type.equals(type)) {
        return Optional.of(action);
      }
    }
    return Optional.empty();
  }
}

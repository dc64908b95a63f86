package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Predicate;

/**
 * References to objects on their way from one client to another. Each is a lease of its sender's
 * that whoever knows its token can take over, once; it ends by that, when its time is over, and
 * with its sender. Guarded by the store's lock.
 */
final class Claims {
  /** What names a claim: 128 bits that nobody guesses. */
  record Token(long high, long low) {}

  private record Claim(Session sender, StoredObject object, long deadline) {}

  private static final int MOST = 1 << 18;

  private final Catalogue catalogue;
  private final SecureRandom random = new SecureRandom();
  private final Map<Token, Claim> claims = new HashMap<>();

  Claims(Catalogue catalogue) {
    this.catalogue = catalogue;
  }

  /** Holds an object that {@code sender} has on lease, until {@code deadline} at the latest. */
  Token add(Session sender, StoredObject object, long deadline) {
    if (claims.size() == MOST) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "request refused: too many claims, limit=" + MOST);
    }
    catalogue.lease(object);
    Token token = new Token(random.nextLong(), random.nextLong());
    claims.put(token, new Claim(sender, object, deadline));
    return token;
  }

  /** Ends a claim after its object has been given to who knows it. */
  void take(Token token, Session receiver, long request) {
    Claim claim = claims.get(token);
    if (claim == null) {
      throw new DissociatedException(
          Code.NOT_FOUND, "reference not loaded: it was loaded before, or its time is over");
    }
    receiver.give(claim.object(), request);
    claims.remove(token);
    catalogue.release(claim.object());
  }

  void expire(long now) {
    end(claim -> claim.deadline() - now <= 0);
  }

  void leave(Session sender) {
    end(claim -> claim.sender() == sender);
  }

  private void end(Predicate<Claim> over) {
    claims
        .values()
        .removeIf(
            claim -> {
              boolean ends = over.test(claim);
              if (ends) {
                catalogue.release(claim.object());
              }
              return ends;
            });
  }
}

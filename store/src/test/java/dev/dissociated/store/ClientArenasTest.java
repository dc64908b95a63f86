package dev.dissociated.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceHandle;
import java.util.List;
import java.util.UUID;
import org.junit.jupiter.api.Test;

/** What a daemon may say of device memory, and what not; no device is needed to tell. */
class ClientArenasTest {
  private final ClientArenas arenas = new ClientArenas();

  private void tell(int id) {
    byte[] handle = new byte[DeviceHandle.HANDLE_LENGTH];
    arenas.told(id, new DeviceHandle(1, id, new UUID(1, 2), 1, handle));
  }

  private static void violated(org.junit.jupiter.api.function.Executable work) {
    StoreFixture.shouldFail(Code.PROTOCOL_VIOLATION, work);
  }

  @Test
  void shouldRefuseWhatIsToldTwice() {
    tell(1);
    violated(() -> tell(1));
    tell(2);
  }

  @Test
  void shouldRefuseBuffersInWhatWasNotTold() {
    violated(() -> arenas.count(1, 1));
    violated(() -> arenas.open(1));
  }

  @Test
  void shouldDropWhatIsNotInUse() {
    tell(1);
    arenas.count(1, 1);
    arenas.count(1, 1);
    arenas.count(1, -1);
    violated(() -> arenas.drop(1));
    arenas.count(1, -1);
    assertTrue(arenas.drop(1));
    assertFalse(arenas.drop(1), "it is not known any more");
    assertFalse(arenas.drop(2));
    tell(1); // the number may come again
  }

  @Test
  void shouldNameAllWhenItIsClosed() {
    tell(1);
    tell(5);
    assertEquals(List.of(1, 5), arenas.close());
    assertEquals(List.of(), arenas.close());
  }
}

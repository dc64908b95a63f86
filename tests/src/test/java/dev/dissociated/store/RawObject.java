package dev.dissociated.store;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * An object as it goes over the wire: whatever bytes, under whatever type. Immutable.
 *
 * @param parts its buffers; of tables the metadata comes first
 */
public record RawObject(String name, ObjectType type, List<byte[]> parts) {
  /** Puts it as any client could that speaks the protocol. */
  public void put(StoreClient client) {
    ByteArrayOutputStream inline = new ByteArrayOutputStream();
    List<BufferRef> refs = new ArrayList<>();
    for (byte[] part : parts) {
      refs.add(new BufferRef(BufferRef.Kind.INLINE, inline.size(), part.length));
      inline.writeBytes(part);
    }
    ByteBuffer bytes = ByteBuffer.wrap(inline.toByteArray());
    client.channel.put(StoreMessage.put(type, 0, name, 0, refs, bytes), List.of());
  }
}

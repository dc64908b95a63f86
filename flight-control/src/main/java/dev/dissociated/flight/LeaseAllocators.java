package dev.dissociated.flight;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ReferenceManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a producer's buffers while clients hold them. Arrow charges memory to an allocator, and an
 * allocator cannot be closed while it is charged: so a lent buffer is charged to a child of its own
 * root, and the producer may close the allocator it made the buffer with.
 *
 * <p>One child per root, shared by all streams, closed with the last lease. Thread-safe.
 */
final class LeaseAllocators {
  private static final Logger LOG = LoggerFactory.getLogger(LeaseAllocators.class);

  private static final class Child {
    private final BufferAllocator allocator;
    private long leases;

    Child(BufferAllocator allocator) {
      this.allocator = allocator;
    }
  }

  private final Map<BufferAllocator, Child> children = new IdentityHashMap<>();

  /** Retains {@code buffers}; the result gives them back. */
  synchronized Runnable retain(List<ArrowBuf> buffers) {
    List<ArrowBuf> retained = new ArrayList<>(buffers.size());
    List<BufferAllocator> roots = new ArrayList<>(buffers.size());
    try {
      for (ArrowBuf buffer : buffers) {
        ReferenceManager manager = buffer.getReferenceManager();
        if (manager == ReferenceManager.NO_OP || buffer.capacity() == 0) {
          continue;
        }
        BufferAllocator root = manager.getAllocator().getRoot();
        Child child = children.computeIfAbsent(root, LeaseAllocators::newChild);
        child.leases++;
        roots.add(root);
        retained.add(manager.retain(buffer, child.allocator));
      }
    } catch (RuntimeException e) {
      release(retained, roots);
      throw e;
    }
    return () -> release(retained, roots);
  }

  private static Child newChild(BufferAllocator root) {
    return new Child(root.newChildAllocator("dissociated-leases", 0, Long.MAX_VALUE));
  }

  private synchronized void release(List<ArrowBuf> buffers, List<BufferAllocator> roots) {
    buffers.forEach(buffer -> buffer.getReferenceManager().release());
    for (BufferAllocator root : roots) {
      Child child = children.get(root);
      if (--child.leases == 0) {
        children.remove(root);
        close(child.allocator);
      }
    }
  }

  private static void close(BufferAllocator allocator) {
    try {
      allocator.close();
    } catch (IllegalStateException e) {
      // Its root was closed under a lease, and whoever did that has been told so by the root.
      LOG.debug("lease allocator not closed in order", e);
    }
  }
}

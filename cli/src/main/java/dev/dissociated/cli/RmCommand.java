package dev.dissociated.cli;

import dev.dissociated.store.ObjectStore;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code rm}: takes the name of an object away. */
@Command(
    name = "rm",
    description = "Deletes an object; who holds it keeps it, and its memory goes with the last.")
final class RmCommand implements Callable<Integer> {
  @Mixin private Target target;

  @Parameters(paramLabel = "NAME", index = "1", description = "What it was put as.")
  private String name;

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  @Override
  public Integer call() throws Exception {
    try (BufferAllocator allocator = new RootAllocator()) {
      target.with(
          () -> {
            try (ObjectStore store = target.objects(allocator)) {
              store.delete(name);
              return null;
            }
          });
    }
    if (json) {
      System.out.println(Json.line(Map.of("name", name)));
    }
    return Main.OK;
  }
}

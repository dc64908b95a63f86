package dev.dissociated.protocol.transport;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Nothing of an interface is forgotten by what forwards it, methods with a default included. */
class ForwardingTest {
  private static final Map<Class<?>, Object> VALUES =
      Map.of(
          long.class,
          7L,
          boolean.class,
          true,
          Optional.class,
          Optional.of("something"),
          ByteBuffer.class,
          ByteBuffer.allocate(1),
          ByteBuffer[].class,
          new ByteBuffer[] {ByteBuffer.allocate(2)},
          Runnable.class,
          (Runnable) () -> {},
          MemorySlices.class,
          MemorySlices.of(0, 0),
          StreamSummary.class,
          new StreamSummary(1, 2, 3),
          DissociatedException.class,
          new DissociatedException(Code.CANCELLED, "enough"),
          String.class,
          "alice");

  private record Call(Method method, Object[] arguments) {}

  private final List<Call> calls = new ArrayList<>();

  static Stream<Method> connectionMethods() {
    return methods(Connection.class);
  }

  static Stream<Method> handlerMethods() {
    return methods(MessageHandler.class);
  }

  private static Stream<Method> methods(Class<?> type) {
    return Arrays.stream(type.getMethods()).filter(m -> !Modifier.isStatic(m.getModifiers()));
  }

  @ParameterizedTest
  @MethodSource("connectionMethods")
  void shouldForwardEveryMethodOfAConnection(Method method) throws Exception {
    Connection carrier = recording(Connection.class);
    assertForwards(new ForwardingConnection(carrier) {}, method);
  }

  @ParameterizedTest
  @MethodSource("handlerMethods")
  void shouldForwardEveryMethodOfAHandler(Method method) throws Exception {
    MessageHandler handler = recording(MessageHandler.class);
    assertForwards(new ForwardingHandler(handler) {}, method);
  }

  @Test
  void shouldForwardToAnotherHandlerFromThenOn() {
    List<String> told = new ArrayList<>();
    MessageHandler first = telling(told, "first");
    MessageHandler second = telling(told, "second");
    var forwarding =
        new ForwardingHandler(first) {
          void change() {
            forwardTo(second);
          }
        };
    forwarding.message(ByteBuffer.allocate(1));
    forwarding.change();
    forwarding.message(ByteBuffer.allocate(1));
    assertSame(second, forwarding.handler());
    assertEquals(List.of("first", "second"), told);
  }

  private static MessageHandler telling(List<String> told, String name) {
    return new ForwardingHandler(Refusing.MESSAGES) {
      @Override
      public void message(ByteBuffer message) {
        told.add(name);
      }
    };
  }

  private void assertForwards(Object forwarding, Method method) throws Exception {
    Object[] arguments = Arrays.stream(method.getParameterTypes()).map(VALUES::get).toArray();
    Object result = method.invoke(forwarding, arguments);
    assertFalse(calls.isEmpty(), () -> "not forwarded: " + method);
    assertEquals(method, calls.get(0).method());
    assertArrayEquals(arguments, calls.get(0).arguments());
    assertEquals(1, calls.size());
    assertEquals(VALUES.get(method.getReturnType()), result);
  }

  private <T> T recording(Class<T> type) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (proxy, method, arguments) -> {
              calls.add(new Call(method, arguments == null ? new Object[0] : arguments));
              return VALUES.get(method.getReturnType());
            }));
  }
}

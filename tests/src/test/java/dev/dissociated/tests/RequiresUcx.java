package dev.dissociated.tests;

import dev.dissociated.protocol.transport.Transport;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.Optional;
import java.util.ServiceLoader;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Tests that need UCX: skipped with the reason where it is missing, or failed with {@code
 * -Ddissociated.require.ucx=true}.
 */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresUcx.Condition.class)
@interface RequiresUcx {
  /** Asks the transport itself. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      Optional<String> why = Optional.of("its module is not on the class path");
      for (Transport transport : ServiceLoader.load(Transport.class)) {
        if (transport.scheme().equals("ucx")) {
          why = transport.unavailable();
        }
      }
      if (why.isPresent() && Boolean.getBoolean("dissociated.require.ucx")) {
        throw new IllegalStateException("UCX is required: " + why.get());
      }
      return why.map(ConditionEvaluationResult::disabled)
          .orElseGet(() -> ConditionEvaluationResult.enabled("UCX is here"));
    }
  }
}

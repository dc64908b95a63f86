package dev.dissociated.ucx;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.Optional;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Tests that need UCX: skipped with the reason where it is missing, or failed with {@code
 * -Ddissociated.require.ucx=true}.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresUcx.Condition.class)
@interface RequiresUcx {
  /** Asks the library itself. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      Optional<String> why = new UcxTransport().unavailable();
      if (why.isPresent() && Boolean.getBoolean("dissociated.require.ucx")) {
        throw new IllegalStateException("UCX is required: " + why.get());
      }
      return why.map(ConditionEvaluationResult::disabled)
          .orElseGet(() -> ConditionEvaluationResult.enabled("UCX is here"));
    }
  }
}

package dev.dissociated.cuda;

import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Tests on the stand-in driver: skipped, with the reason, where no compiler can build it. */
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresStandIn.Condition.class)
public @interface RequiresStandIn {
  /** Builds it, and makes it the driver of this JVM unless one has been looked for before. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      if (StandIn.problem().isPresent()) {
        return ConditionEvaluationResult.disabled(StandIn.problem().get());
      }
      System.setProperty(Cuda.LIBRARY_PROPERTY, StandIn.library().toString());
      return ConditionEvaluationResult.enabled("the stand-in driver is there");
    }
  }
}

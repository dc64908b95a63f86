package dev.dissociated.tests;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Tests that need the C++ peer, which {@code tools/cpp.sh} builds: skipped where {@code
 * DISSOCIATED_CPP} names no program, or failed where {@code ./run-tests --require cpp} asks for it.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresCpp.Condition.class)
@interface RequiresCpp {
  /** The variable that names the program. */
  String PROGRAM = "DISSOCIATED_CPP";

  /** Looks for the program. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      String program = System.getenv(PROGRAM);
      if (program != null && Files.isExecutable(Path.of(program))) {
        return ConditionEvaluationResult.enabled("the C++ peer is here");
      }
      String required = System.getenv("DISSOCIATED_REQUIRE");
      if (required != null && List.of(required.split(",")).contains("cpp")) {
        throw new IllegalStateException("the C++ peer is required: program=" + program);
      }
      return ConditionEvaluationResult.disabled(
          "the C++ peer is not built, " + PROGRAM + "=" + program);
    }
  }
}

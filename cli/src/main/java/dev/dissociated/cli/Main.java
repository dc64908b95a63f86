package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import java.io.PrintWriter;
import java.util.List;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.IExecutionExceptionHandler;
import picocli.CommandLine.Option;
import picocli.CommandLine.ScopeType;

/** Entry point of the {@code dissociated} program. */
@Command(
    name = "dissociated",
    description = "Moves Arrow record batches between processes without moving the body.",
    mixinStandardHelpOptions = true,
    scope = ScopeType.INHERIT,
    version = "dissociated 0.1.0-SNAPSHOT",
    synopsisSubcommandLabel = "COMMAND")
public final class Main {
  static final int OK = 0;
  static final int FAILED = 1;
  static final int USAGE = 2;

  /** In the order of the help. */
  private static final List<Class<?>> COMMANDS =
      List.of(
          ServeCommand.class,
          GetCommand.class,
          PutCommand.class,
          ListCommand.class,
          StatCommand.class,
          RmCommand.class,
          PullCommand.class,
          DoctorCommand.class,
          DemoCommand.class,
          BenchCommand.class,
          CommandLine.HelpCommand.class);

  private static final String LOG_LEVEL = "org.slf4j.simpleLogger.defaultLogLevel";

  Main() {}

  /** Before any logger exists: it reads its level once. */
  @Option(
      names = {"-v", "--verbose"},
      scope = ScopeType.INHERIT,
      description = "Log what happens to standard error.")
  void verbose(boolean on) {
    if (on) {
      System.setProperty(LOG_LEVEL, "debug");
    }
  }

  /** Runs one command and exits with its code. */
  public static void main(String[] arguments) {
    if (System.getProperty(LOG_LEVEL) == null) {
      System.setProperty(LOG_LEVEL, "warn");
    }
    int code;
    try {
      code = commandLine(arguments).execute(arguments);
    } catch (OutOfMemoryError e) { // a batch larger than this process may have is no defect of it
      System.err.println("dissociated: " + oneLine(e));
      code = FAILED;
    }
    System.out.flush();
    System.exit(code);
  }

  /**
   * The program with the command that the arguments name, or with all of them where they name none:
   * reading the options of every command takes a quarter of the time of a short one.
   */
  static CommandLine commandLine(String... arguments) {
    IExecutionExceptionHandler handler =
        (failure, command, parsed) -> {
          PrintWriter err = command.getErr();
          err.println("dissociated " + command.getCommandName() + ": " + oneLine(failure));
          err.flush();
          if (Boolean.getBoolean("dissociated.trace")) {
            failure.printStackTrace(err);
          }
          return FAILED;
        };
    CommandLine program = new CommandLine(new Main());
    named(arguments).forEach(program::addSubcommand);
    return program.setExecutionExceptionHandler(handler).setCaseInsensitiveEnumValuesAllowed(true);
  }

  private static List<Class<?>> named(String... arguments) {
    for (String argument : arguments) {
      if (argument.startsWith("-")) {
        continue;
      }
      for (Class<?> command : COMMANDS) {
        if (command != CommandLine.HelpCommand.class
            && command.getAnnotation(Command.class).name().equals(argument)) {
          return List.of(command);
        }
      }
      break;
    }
    return COMMANDS;
  }

  /** What failed, in one line, whatever its text. */
  static String oneLine(Throwable failure) {
    String text = failure.getMessage();
    if (text == null || text.isBlank()) {
      text = failure.toString();
    } else if (!(failure instanceof DissociatedException)) {
      text = failure.getClass().getSimpleName() + ": " + text;
    }
    return text.replaceAll("\\s*\\R\\s*", "; ");
  }
}

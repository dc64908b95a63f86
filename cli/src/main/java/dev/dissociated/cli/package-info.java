/**
 * The command line program: one class per command, on picocli.
 *
 * <p>Standard output carries results only, logs and progress go to standard error. Exit codes: 0
 * success; 1 the data or the peer failed, told in one line on standard error; 2 bad usage.
 */
package dev.dissociated.cli;

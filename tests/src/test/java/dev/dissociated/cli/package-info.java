/** Commands of the program without a process for each. */
package dev.dissociated.cli;

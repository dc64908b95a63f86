/**
 * What the tests of every module share: the contracts that a transport must keep, data of every
 * type, and a guard against leaks.
 */
package dev.dissociated.protocol.testing;

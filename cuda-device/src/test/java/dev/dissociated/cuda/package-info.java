/** Tests of CUDA without a GPU, on the stand-in driver of tests/standin-cuda. */
package dev.dissociated.cuda;

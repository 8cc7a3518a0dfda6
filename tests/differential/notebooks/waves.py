"""A signal and its spectrum."""

# %%
import numpy as np

rate = 200
t = np.arange(0, 1, 1 / rate)
clean = np.sin(2 * np.pi * 5 * t) + 0.5 * np.sin(2 * np.pi * 30 * t)
noise = np.random.default_rng(0).normal(0, 0.2, t.size)
signal = clean + noise

# %%
spectrum = np.abs(np.fft.rfft(signal)) / t.size
peaks = np.argsort(spectrum)[-2:]
sorted(peaks.tolist())

# %%
# %matplotlib inline
import matplotlib.pyplot as plt

fig, (top, bottom) = plt.subplots(2, 1, figsize=(6, 4), sharex=False)
top.plot(t, signal, lw=0.8)
bottom.stem(spectrum[:50]);

# %%
window = np.hanning(9)
smooth = np.convolve(signal, window / window.sum(), mode='same')
float(np.sqrt(((smooth - clean) ** 2).mean()).round(4))

# %%
top.plot(t, smooth, 'r')
top.set_title('smoothed')
fig

# %%
from scipy import signal as sps

b, a = sps.butter(3, 10, fs=rate)
low = sps.filtfilt(b, a, signal)
low[:4].round(4)

# %%
segments = signal.reshape(4, 50)
segments[0] = 0
signal[:3], np.shares_memory(signal, segments)

"""A network made, trained, kept and read again; tapes, variables, data sets and random states (TensorFlow, tf.keras)."""

# %%
import os

os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'
os.environ['KERAS_BACKEND'] = 'tensorflow'
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(3)
tf.config.list_physical_devices('GPU')

# %%
x = np.linspace(-1, 1, 96, dtype='float32')[:, None]
y = (x**2 + 0.05 * np.random.randn(*x.shape)).astype('float32')
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96, seed=1).batch(16)
sum(int(tf.shape(batch)[0]) for batch, _ in data)

# %%
weights = tf.Variable(tf.zeros((2, 1)), name='weights')
features = tf.concat([x, tf.ones_like(x)], axis=1)
features.shape, features.dtype

# %%
for step in range(20):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weights - y) ** 2)
    weights.assign_sub(0.3 * tape.gradient(loss, weights))
round(float(loss), 4), weights.numpy().ravel().round(3)

# %%
same = weights
same.assign_add(tf.ones((2, 1)))
same is weights, float(weights[0, 0]) == float(same[0, 0])

# %%
model = keras.Sequential([
    keras.Input((1,)),
    layers.Dense(8, activation='tanh'),
    layers.Dropout(0.1),
    layers.Dense(1),
])
model.compile(optimizer=keras.optimizers.Adam(0.02), loss='mse', metrics=['mae'])
model.count_params()

# %%
history = model.fit(x, y, epochs=5, batch_size=16, verbose=0)
[round(v, 4) for v in history.history['loss']]

# %%
int(model.optimizer.iterations), history.model is model, history.epoch

# %%
more = model.fit(x, y, epochs=7, initial_epoch=5, batch_size=16, verbose=2, validation_split=0.2)
sorted(more.history), int(model.optimizer.iterations)

# %%
model.evaluate(x, y, verbose=0)

# %%
predicted = model.predict(x[:4], verbose=0)
predicted.shape, predicted.dtype

# %%
plt.plot(history.history['loss'])
plt.title('loss')
plt.show()

# %%
model.summary()

# %%
model.save('curve.keras')
again = keras.models.load_model('curve.keras')
np.allclose(again.predict(x[:4], verbose=0), predicted)

# %%
model.save_weights('curve.weights.h5')
again.load_weights('curve.weights.h5')
[w.name for w in again.trainable_weights]

# %%
@keras.utils.register_keras_serializable('shop')
class Scale(layers.Layer):
    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor
        self.calls = 0

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), initializer='ones', name='gain')

    def call(self, inputs):
        self.calls += 1
        return inputs * self.gain * self.factor

    def get_config(self):
        return {**super().get_config(), 'factor': self.factor}


inputs = keras.Input((1,))
hidden = layers.Dense(4, activation='relu', name='hidden')(inputs)
outputs = Scale(name='scale')(layers.Dense(1)(hidden))
functional = keras.Model(inputs, outputs, name='functional')
functional.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9), momentum=0.9), 'mse')
[layer.name for layer in functional.layers]

# %%
class Notes(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(round(logs['loss'], 3))


notes = Notes()
stop = keras.callbacks.EarlyStopping('loss', patience=2, restore_best_weights=True)
functional.fit(x, y, epochs=3, verbose=0, shuffle=False, callbacks=[notes, stop])
len(notes.losses), notes.model is functional

# %%
functional.get_layer('scale').gain.numpy().shape, float(functional.optimizer.learning_rate) < 0.1

# %%
functional.save('functional.keras')
keras.models.load_model('functional.keras').get_layer('scale').factor

# %%
extractor = keras.Model(functional.input, functional.get_layer('hidden').output)
extractor.layers[1] is functional.layers[1], extractor(x[:2]).shape

# %%
@tf.function
def step(batch, target):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((functional(batch, training=True) - target) ** 2)
    grads = tape.gradient(loss, functional.trainable_variables)
    functional.optimizer.apply_gradients(zip(grads, functional.trainable_variables))
    return loss


first = float(step(x, y))
first > 0

# %%
losses = [float(step(batch, target)) for batch, target in tf.data.Dataset.from_tensor_slices((x, y)).batch(32)]
len(losses), int(functional.optimizer.iterations)

# %%
tf.random.set_seed(5)
drawn = tf.random.uniform((2,))
drawn

# %%
tf.random.uniform((2,))

# %%
generator = tf.random.Generator.from_seed(1)
generator.normal((2,))

# %%
generator.normal((2,)), np.random.rand()

# %%
ragged = tf.ragged.constant([[1, 2], [3]])
sparse = tf.sparse.from_dense([[0, 1], [2, 0]])
ragged.row_lengths(), sparse.values

# %%
ragged + 1, tf.sparse.to_dense(sparse)

# %%
keras.mixed_precision.set_global_policy('mixed_bfloat16')

# %%
layer = layers.Dense(2)
layer(x[:2]).dtype, layer.kernel.dtype, keras.mixed_precision.global_policy().name

# %%
keras.mixed_precision.set_global_policy('float32')
keras.backend.set_floatx('float32')
layers.Dense(2)(x[:2]).dtype

# %%
metric = keras.metrics.MeanSquaredError()
metric.update_state([1.0], [2.0])
float(metric.result())

# %%
metric.update_state([1.0], [4.0])
float(metric.result())

# %%
text = layers.TextVectorization(output_sequence_length=3)
text.adapt(['the cat', 'the dog sat'])
text.get_vocabulary()

# %%
text(['the dog'])

# %%
tf.constant([1, 2]) + tf.constant([1.5])

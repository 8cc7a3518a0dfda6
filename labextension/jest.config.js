// JupyterLab's packages are ES modules: they are transformed like our own code.
module.exports = {
  testEnvironment: 'jsdom',
  testMatch: ['<rootDir>/test/**/*.spec.ts?(x)'],
  setupFiles: ['<rootDir>/test/setup.js'],
  transform: {
    '^.+\\.[tj]sx?$': [
      'ts-jest',
      {
        tsconfig: {
          allowJs: true,
          esModuleInterop: true,
          isolatedModules: true,
          jsx: 'react',
          module: 'commonjs',
          target: 'ES2020'
        },
        diagnostics: false
      }
    ]
  },
  transformIgnorePatterns: [
    '/node_modules/(?!(@jupyter|@jupyterlab|@lumino|@microsoft|@rjsf|exenv-es6|lib0|nanoid|y-protocols|y-websocket|yjs|vscode-ws-jsonrpc)/)'
  ],
  moduleNameMapper: {
    '\\.(css|less|raw)$': '<rootDir>/test/empty.js',
    '\\.svg$': '<rootDir>/test/empty.js'
  }
};
